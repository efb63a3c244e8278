"""What a universal package compiles when it is imported is compiled once, in the build role."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.build import build
from harness.builder.inline import compiles_inline, inline_libraries
from harness.builder.layout import Layout
from harness.builder.toolchain import Toolchain
from harness.builder.units import Units
from harness.outcome import Cause
from harness.records import ProjectFile, Target
from sandboxes.job import Limits
from tests.fakes.sandbox import FakeSandbox, exit_facts
from tests.fakes.universal import universal

LIMITS = Limits(wall_s=1.0)
_ASKS = "from torch.utils.cpp_extension import load_inline\n"


def layout(text: str, target: Target = "cpu") -> Layout:
    """A package of one file."""
    return Layout(
        module="scale",
        ops_name="_scale",
        target=target,
        variant=f"torch-{target}",
        stable_abi=None,
        units=Units(units=()),
        tree=(),
        package=(ProjectFile(path="__init__.py", text=text),),
        warnings=(),
    )


def test_only_a_package_that_names_it_is_imported() -> None:
    """Any other universal project has nothing compiled, and is not run in the build role."""
    assert compiles_inline(layout(_ASKS))
    assert compiles_inline(layout("import torch.utils.cpp_extension as e\n"))
    assert not compiles_inline(layout("import torch\nreload_inlines = 1\n"))


def test_a_torch_without_cuda_is_not_the_projects_fault(toolchain: Toolchain) -> None:
    """There is nothing to link CUDA code with: not measured, with what to install."""
    without = toolchain.model_copy(update={"torch_cuda": None})
    found = inline_libraries(
        layout(_ASKS, "cuda"), without, sandbox=FakeSandbox(exit_facts("ok")), limits=LIMITS
    )
    assert found.finding is not None and found.finding.cause is Cause.NO_TOOLCHAIN
    assert "CUDA build of torch" in found.finding.message


@pytest.mark.parametrize(
    ("status", "output", "cause", "said"),
    [
        (
            "nonzero",
            "[1/2] g++ -c /tmp/job/scratch/extensions/x/main.cpp\n"
            "/tmp/job/scratch/extensions/x/main.cpp:3:1: error: expected ';'\n    3 | }\n"
            "ninja: build stopped\nTraceback",
            Cause.COMPILE_ERROR,
            "compiled inline: x/main.cpp:3:1: error: expected ';'\n    3 | }",
        ),
        ("nonzero", "", Cause.COMPILE_ERROR, "compiled inline: it failed and printed nothing"),
        ("wall_timeout", "", Cause.BUILD_TIMEOUT, "took too long"),
        ("oom", "", Cause.BUILD_LIMIT, "oom"),
    ],
)
def test_how_it_ends_is_told(toolchain: Toolchain, status: str, output: str, cause: Cause, said: str) -> None:
    """The compilers' first error without the folder that they ran in, and limits as those of any build."""
    sandbox = FakeSandbox(exit_facts(status, output=output))  # type: ignore[arg-type]
    found = inline_libraries(layout(_ASKS), toolchain, sandbox=sandbox, limits=LIMITS)
    assert found.finding is not None
    assert found.finding.cause is cause
    assert said in found.finding.message
    assert found.files == {}


def test_it_is_imported_where_projects_are_compiled(toolchain: Toolchain) -> None:
    """In the build role, without a GPU, for this project's architecture."""
    sandbox = FakeSandbox(exit_facts("ok"))
    inline_libraries(layout(_ASKS), toolchain, sandbox=sandbox, limits=LIMITS)
    (job,) = sandbox.jobs
    assert (job.role, job.device) == ("build", None)
    assert job.environment["TORCH_CUDA_ARCH_LIST"] == "9.0 9.0a"
    assert job.environment["TORCH_EXTENSIONS_DIR"] == "{scratch}/extensions"


@pytest.mark.slow
def test_what_it_compiled_lies_in_the_package(toolchain: Toolchain, sandbox: object, tmp_path: Path) -> None:
    """The import is real; the library is taken by the extension's name, and the build is cached with it."""
    text = (
        "from torch.utils.cpp_extension import load\n"
        "from pathlib import Path\n"
        "source = Path(__file__).with_name('tiny.cpp')\n"
        "source.write_text('extern \"C\" int three() { return 3; }')\n"
        "load(name='tiny', sources=[str(source)], is_python_module=False, with_cuda=False)\n"
    )
    project = universal({"torch-ext/scale/numbers.py": text + "FACTOR = 1.0\n"})
    built = build(project, "cpu", sandbox=sandbox, toolchain=toolchain, cache=tmp_path)  # type: ignore[arg-type]
    assert built.result.ok, built.result.finding
    assert built.package is not None
    assert (built.package / "_inline" / "tiny.so").read_bytes()[:4] == b"\x7fELF"
    again = build(project, "cpu", sandbox=sandbox, toolchain=toolchain, cache=tmp_path)  # type: ignore[arg-type]
    assert again.result.cache_hit
