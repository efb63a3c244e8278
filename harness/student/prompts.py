"""The student's prompt: a pure function of task, target, briefing, skill texts, delivery and turns.

It contains nothing about this machine, the arm's name or the time, so its digest is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harness.records import Arm, Briefing, Message, Request, Sampling, Skill, Target, Task, Workload
from harness.student.grading_rules import grading_rules
from harness.student.skill_tool import READS_LIMIT, TOOL, catalogue

SYSTEM = """\
You are an expert in high-performance kernels. You answer with one complete kernel-builder project: \
every file whole, ready to build, nothing left out and nothing to be filled in later. You cannot run, \
look up or save anything: your one message is the answer, and its files are built, checked and timed as \
they stand."""

_EXPERT = SYSTEM.partition("You cannot")[0]

_NO_HANDS = {
    "body": "You cannot run, look up or save anything.",
    "disclosed": "You cannot run or save anything.",
}

_READING = f"""\
Before you answer you may read files of skills, where the first message lists any, with the tool \
`{TOOL.name}`: at most {READS_LIMIT} for one answer. A message that calls the tool is no answer; what stands \
beside the call is not read."""

_ONE_ANSWER = """\
You answer once, and the files of your answer are built, checked and timed as they stand."""

_TURNS = """\
You have up to {turns} answers. The files of each are built, checked and timed as they stand, and you are \
told what came of it before the next. The project in your last answer counts, even if an earlier one was \
better. An answer holds the whole project again, or else nothing but the line `KEEP`: then the project \
before it stands, and you are asked no more."""

_ROLES = {
    "out": "written by you; holds garbage before the call",
    "in": "read only",
    "inout": "read and written",
    "partial": "written only where `{mask}` is true; all else must keep its bytes",
}

_TARGETS: dict[Target, str] = {
    "cpu": "an x86-64 CPU (kernel-builder's `cpu` backend, C++), one thread",
    "cuda": "an NVIDIA H100 or H200 GPU (kernel-builder's `cuda` backend, built for sm_90 with nvcc 13.0)",
}

_LAYOUT = """\
## The project

A Hugging Face kernel-builder project, `build.toml` edition 5:

- `[general]`: `name = "{package}"`, `version = 1`, `edition = 5`, `license`, `backends = ["{target}"]`.
- `[torch]`: `src`, the list of the binding's sources and headers.
- one `[kernel.NAME]` section for each component: `backend = "{target}"`, `depends = ["torch"]`, `src`, the \
list of its sources and headers (no globs{flags}). Unknown keys are errors. A file that is neither listed \
in some `src` nor a Python file under `torch-ext/` does not exist for the build.
- `torch-ext/{module}/__init__.py`: the Python package. It exports the function below. The compiled ops \
are reached by `from ._ops import ops`, then `ops.NAME(...)`; `_ops.py` is generated, do not write it.
- A binding source (such as `torch-ext/torch_binding.cpp`) registers the ops. `registration.h`, \
generated beside it, defines `TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)`, \
`TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KEY, m)`, the same two with `STABLE_` in front for the \
stable ABI, and `REGISTER_EXTENSION(TORCH_EXTENSION_NAME)`, which must stand once at the end of the \
binding. pybind11 and `torch/extension.h` do not build (the Python limited API is on).

It is compiled with `-O3` as C++17 or later against PyTorch 2.10 or later, without network. {compilers} \
Headers cost build time: `torch/all.h`, `torch/torch.h`, `torch/types.h` or `ATen/ATen.h` take up to a \
minute or more for every file that includes them. Lean ones take seconds: \
`torch/library.h` with `ATen/core/Tensor.h`, or the stable ABI (`torch/csrc/stable/library.h` and \
`torch/csrc/stable/tensor.h`, with `stable-abi = "2.10"` in `[torch]`; then no other torch headers but \
`torch/headeronly/...`). Building everything must end within ten minutes on two cores."""

_FLAGS: dict[Target, str] = {
    "cpu": "; optional: `cxx-flags`",
    "cuda": "; optional: `cxx-flags`, `cuda-flags`, `cuda-capabilities`",
}
_COMPILERS: dict[Target, str] = {
    "cpu": "The compiler is g++ 12; `-march` is not set, and the machine has AVX2, FMA and perhaps AVX-512.",
    "cuda": "Without `cuda-capabilities` the kernels are compiled for sm_90.",
}

_CONTRACT = """\
## The project

Answer with a Hugging Face kernel-builder project named `{package}` for the `{target}` backend, to be built \
with kernel-builder against PyTorch 2.10 or later, without network. {machine}Building everything must end \
within ten minutes on two cores."""

_MACHINES: dict[Target, str] = {
    "cpu": "The machine has AVX2, FMA and perhaps AVX-512. ",
    "cuda": "",
}

_REPLY = """\
## Your reply

Give every file as one fenced code block whose info string is the language and the file's path, like this:

```toml build.toml
...
```

```cpp torch-ext/torch_binding.cpp
...
```

Paths are relative to the project's root. Text outside the blocks is ignored."""

_CONTRACT_REPLY = """\
## Your reply

Give every file as one fenced code block whose info string is the language and the file's path, like this:

```text path/to/first.txt
...
```

```text path/to/second.txt
...
```

Paths are relative to the project's root. Text outside the blocks is ignored."""


def signature(task: Task) -> str:
    """The Python call, such as `rms_norm(out, x, weight, *, eps)`."""
    words = [o.name for o in task.operands if not o.keyword]
    named = [o.name for o in task.operands if o.keyword] + [s.name for s in task.scalars]
    if named:
        words += ["*", *named]
    return f"{task.op}({', '.join(words)})"


def _operand_rows(task: Task) -> str:
    rows = ["| operand | role | shape | dtype |", "|---|---|---|---|"]
    for o in task.operands:
        role = _ROLES[o.role].format(mask=o.mask) + (", keyword argument" if o.keyword else "")
        dtype = "the workload's" if o.dtype == "$dtype" else o.dtype
        rows.append(f"| `{o.name}` | {role} | ({', '.join(o.shape)}) | {dtype} |")
    for s in task.scalars:
        rows.append(f"| `{s.name}` | keyword argument | | Python {s.type} |")
    return "\n".join(rows)


def _workload_row(workload: Workload) -> str:
    dims = ", ".join(f"{k} = {v}" for k, v in workload.dims.items())
    scalars = ", ".join(f"{k} = {v!r}" for k, v in workload.scalars.items())
    return f"| {dims or 'as above'} | {scalars or '-'} | {'yes' if workload.timed else 'no'} |"


def _project_text(task: Task, target: Target, briefing: Briefing) -> str:
    """What is said about kernel-builder, and the format of a reply."""
    names = {"package": task.package, "module": task.module, "target": target}
    if briefing == "contract":
        return f"{_CONTRACT.format(**names, machine=_MACHINES[target])}\n\n{_CONTRACT_REPLY}"
    layout = _LAYOUT.format(**names, flags=_FLAGS[target], compilers=_COMPILERS[target])
    return f"{layout}\n\n{_REPLY}"


def task_text(task: Task, target: Target, briefing: Briefing) -> str:
    """The task in Markdown; the same in every arm."""
    dtypes = ", ".join(task.dtypes[target])
    workloads = "\n".join(_workload_row(w) for w in task.workloads_for(target))
    return f"""\
# Task: {task.title}

Write a kernel that is correct and as fast as you can make it, for {_TARGETS[target]}.

## What it computes

{task.semantics.strip()}

## Interface

The Python package `{task.module}` exports

```python
{signature(task)}
```

{_operand_rows(task)}

Shapes and dtypes it is called with (each shape with every dtype): {dtypes}

| sizes | scalars | timed |
|---|---|---|
{workloads}

{grading_rules(task, target)}

{_project_text(task, target, briefing)}
"""


def skill_text(skills: Sequence[Skill]) -> str:
    """The skills, which come before the task; empty without skills."""
    return "".join(f'<skill name="{s.name}">\n{s.body.strip()}\n</skill>\n\n' for s in skills)


def system_text(delivery: Literal["body", "disclosed"], turns: int) -> str:
    """The system prompt, which is the same in every arm of a run."""
    if delivery == "body" and turns == 1:
        return SYSTEM
    parts = [_NO_HANDS[delivery], _READING] if delivery == "disclosed" else [_NO_HANDS[delivery]]
    return _EXPERT + " ".join([*parts, _ONE_ANSWER if turns == 1 else _TURNS.format(turns=turns)])


def make_request(
    task: Task,
    target: Target,
    arm: Arm,
    skills: Sequence[Skill],
    *,
    sampling: Sampling,
    repeat: int,
    briefing: Briefing,
    turns: int = 1,
) -> Request:
    """The first request of a trial. `skills` are those of `arm`, in its order; ValueError otherwise."""
    if tuple(s.digest for s in skills) != arm.skills:
        raise ValueError(f"arm {arm.id} wants skills {arm.skills}")
    disclosed = arm.delivery == "disclosed"
    user = (catalogue(skills) if disclosed else skill_text(skills)) + task_text(task, target, briefing)
    system = system_text(arm.delivery, turns)
    return Request(
        messages=(Message(role="system", content=system), Message(role="user", content=user)),
        sampling=sampling,
        task=task.id,
        arm=arm.id,
        repeat=repeat,
        tools=(TOOL,) if disclosed else (),
    )
