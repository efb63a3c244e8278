"""A task, a skill and replies so small that a whole eval takes seconds."""

from __future__ import annotations

from pathlib import Path

from harness.models.recording import RecordingManifest
from harness.records import Arm, Reply, Sampling, Usage
from harness.skills.spec import load_skill
from harness.student.prompts import make_request
from harness.suite.catalogue import load_task
from tests.fakes.recordings import create, write_reply

TASK_TOML = """
version = 1
family = "{name}"
title = "Double every element"
op = "{name}"
package = "{name}"
tolerance = "elementwise"
semantics = "out = 2 * x"
[dtypes]
cpu = ["float32"]
cuda = ["float32"]
[[operand]]
name = "out"
role = "out"
shape = ["n"]
[[operand]]
name = "x"
role = "in"
shape = ["n"]
[[workload]]
name = "small"
dims = {{ n = 65536 }}
timed = true
"""

REFERENCE = """
def reference(inputs):
    return (inputs["x"] * 2,)


def make_inputs(workload, generator):
    return {"x": generator.normal((workload.dims["n"],)).to(workload.dtype)}
"""

PROJECT = {
    "build.toml": """
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
[torch]
src = ["torch-ext/torch_binding.cpp"]
stable-abi = "2.10"
[kernel.{name}]
backend = "cpu"
depends = ["torch"]
src = ["{name}.cpp"]
""",
    "{name}.cpp": """
#include <cstdint>
void run(float* out, const float* x, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) out[i] = {factor} * x[i];
}}
""",
    "torch-ext/torch_binding.cpp": """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include "registration.h"
void run(float* out, const float* x, int64_t n);
static void op(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {{
  run(static_cast<float*>(out.data_ptr()), static_cast<const float*>(x.data_ptr()), x.numel());
}}
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {{ m.def("op(Tensor! out, Tensor x) -> ()"); }}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {{ m.impl("op", TORCH_BOX(&op)); }}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
""",
    "torch-ext/{name}/__init__.py": """
from ._ops import ops


def {name}(out, x):
    ops.op(out, x)
""",
}


def project_reply(name: str, factor: str = "2.0f") -> str:
    """A reply with a project that multiplies by `factor`."""
    blocks = []
    for path, text in PROJECT.items():
        filled = text.format(name=name, factor=factor).lstrip("\n")
        blocks.append(f"```text {path.format(name=name)}\n{filled}```\n")
    return "Here it is.\n\n" + "\n".join(blocks)


def write_tasks(root: Path, names: tuple[str, ...]) -> Path:
    """Tasks `t/NAME` below root/tasks."""
    for name in names:
        folder = root / "tasks" / "t" / name
        folder.mkdir(parents=True)
        (folder / "task.toml").write_text(TASK_TOML.format(name=name))
        (folder / "reference.py").write_text(REFERENCE)
    return root / "tasks"


def write_skill(root: Path) -> Path:
    """A skill called tiny-skill."""
    folder = root / "tiny-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: tiny-skill\ndescription: Says little.\n---\n\nMultiply.\n")
    return folder


def record(root: Path, tasks: Path, skill: Path, repeats: int, text: str) -> Path:
    """A recording in which every trial of a CPU eval got the same text."""
    loaded = [load_task(path.parent) for path in sorted(tasks.glob("*/*/task.toml"))]
    known = load_skill(str(skill)).skill
    folder = root / "recording"
    create(
        folder,
        RecordingManifest(
            model_label="fake/model",
            date="2026-01-01",
            tasks={t.task.id: t.task.digest for t in loaded},
            skills={known.name: known.digest},
        ),
    )
    for one in loaded:
        for arm in (Arm(kind="without_skill"), Arm(kind="with_skill", skills=(known.digest,))):
            skills = [known] if arm.skills else []
            for repeat in range(repeats):
                request = make_request(one.task, "cpu", arm, skills, sampling=Sampling(), repeat=repeat)
                reply = Reply(
                    text=text,
                    stop="end",
                    model_label="fake/model",
                    created="2026-01-01T00:00:00Z",
                    usage=Usage(input_tokens=100, output_tokens=50),
                )
                write_reply(folder, request, arm.id, reply)
    return folder
