"""Universal projects: planned, put together without a compiler, loaded by upstream's own loader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.builder.build import Built, build
from harness.builder.layout import Layout
from harness.builder.load_inline import compiles_inline, inline_libraries
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import Target
from sandboxes.job import Limits
from tests.fakes.projects import fake_toolchain, planned, project, refused
from tests.fakes.sandbox import FakeSandbox, exit_facts
from tests.fakes.universal import BUILD_TOML, universal


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """Without a compiler."""
    return fake_toolchain(tmp_path / "tools").model_copy(update={"gxx": None, "ninja": None, "cuda": None})


def put_together(toolchain: Toolchain, tmp_path: Path) -> Built:
    """Build for the CPU in a sandbox that must not be used."""
    sandbox = FakeSandbox(exit_facts("sandbox_error"))
    built = build(universal(), "cpu", sandbox=sandbox, toolchain=toolchain, cache=tmp_path / "cache")
    assert sandbox.jobs == [], "nothing is to be compiled"
    return built


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_package_is_the_whole_build(target: Target, toolchain: Toolchain) -> None:
    """The variant has kernel-builder's name, the Python files, the stubs, and what is generated."""
    layout = planned(universal(), target, toolchain)
    assert layout.jit
    assert (layout.variant, layout.tree, layout.units.units) == (f"torch-{target}", {}, ())
    package = layout.package
    assert set(package) == {"__init__.py", "_ops.py", "metadata.json", "numbers.py", "numbers.pyi"}
    assert f"torch.ops.{layout.ops_name}" in package["_ops.py"] and "from . import" not in package["_ops.py"]
    assert json.loads(package["metadata.json"])["backend"] == {"type": target}


REFUSED = {
    "other backend": ({'build.toml': BUILD_TOML.replace('"cpu", ', '')}, Cause.NO_BACKEND,
        'general.backends lacks "cpu"'),
    "compiled kernel": ({'build.toml': BUILD_TOML + '[kernel.a]\nbackend = "cpu"\ndepends = []\nsrc = []\n'},
        Cause.BAD_BUILD_TOML, "[kernel.a] is to be compiled"),
    "own _ops.py": ({"torch-ext/scale/_ops.py": ""}, Cause.BAD_LAYOUT, "_ops.py is generated"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_upstream_would_refuse_is_refused(name: str, toolchain: Toolchain) -> None:
    """With the cause, and words that say what to do."""
    changes, cause, part = REFUSED[name]
    finding = refused(universal(changes), "cpu", toolchain)
    assert finding.cause is cause and part in finding.message


def test_no_compiler_is_needed(toolchain: Toolchain, tmp_path: Path) -> None:
    """A machine with neither g++ nor nvcc builds it; the result says jit, and is cached."""
    built = put_together(toolchain, tmp_path)
    result = built.result
    assert result.ok and result.jit
    assert (result.units, result.compiler_s, result.variant, result.calls) == (0, None, "torch-cpu", None)
    assert (result.module, result.cache_hit) == ("scale", False)
    again = put_together(toolchain, tmp_path)
    assert again.result.cache_hit and again.result.jit and again.package == built.package


_LOAD = """
import json, sys
from pathlib import Path
import torch
from kernels import get_local_kernel
from kernels._rust import Digest, DigestAlgorithm, Metadata
variant = Path(sys.argv[1])
metadata = Metadata.read_from_file(variant / "metadata.json")
metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
kernel = get_local_kernel(variant.parent, backend="cpu")
out, x = torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])
getattr(kernel, sys.argv[2])(out, *eval(sys.argv[3], {"x": x}), **json.loads(sys.argv[4]))
print(json.dumps([out.tolist(), metadata.id, str(metadata.name), kernel.__name__]))
"""


def loaded(package: Path | None, function: str, arguments: str, scalars: str) -> list[object]:
    """What upstream's loader and our op say, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(package), function, arguments, scalars],
        env={"HF_HUB_OFFLINE": "1", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: list[object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_upstreams_loader_takes_every_variant(toolchain: Toolchain, really, tmp_path: Path) -> None:
    """kernels.get_local_kernel finds it, its digest agrees, its op computes: Python only, and C++."""
    universal_one = put_together(toolchain, tmp_path)
    values, identifier, name, module = loaded(universal_one.package, "scale", "[x]", '{"alpha": 2.0}')
    assert (values, name) == ([2.0, 4.0, 6.0], "scale")
    assert identifier == f"_scale_cpu_{universal().digest[:7]}" and identifier in str(module)
    compiled = really(project(), "cpu", tmp_path / "cache")
    assert compiled.result.ok and not compiled.result.jit, compiled.result.finding
    values, identifier, name, _ = loaded(compiled.package, "fill", "[]", '{"value": 7.0}')
    assert (values, name) == ([7.0, 7.0, 7.0], "fill-it")
    assert identifier == f"_fill_it_cpu_{project().digest[:7]}"


LIMITS = Limits(wall_s=1.0)
_ASKS = "from torch.utils.cpp_extension import load_inline\n"


def inline_layout(text: str, toolchain: Toolchain, target: Target = "cpu") -> Layout:
    """Of a universal project whose file begins with `text`."""
    return planned(universal({"torch-ext/scale/numbers.py": text + "FACTOR = 1.0\n"}), target, toolchain)


def test_only_a_package_that_names_it_is_imported(toolchain: Toolchain) -> None:
    """Any other universal project has nothing compiled, and is not run in the build role."""
    assert compiles_inline(inline_layout(_ASKS, toolchain))
    assert compiles_inline(inline_layout("import torch.utils.cpp_extension as e\n", toolchain))
    assert not compiles_inline(inline_layout("import torch\nreload_inlines = 1\n", toolchain))


def test_a_torch_without_cuda_is_not_the_projects_fault(real: Toolchain) -> None:
    """There is nothing to link CUDA code with: not measured, with what to install."""
    without = real.model_copy(update={"torch_cuda": None})
    layout = inline_layout(_ASKS, without, "cuda")
    found = inline_libraries(layout, without, sandbox=FakeSandbox(exit_facts("ok")), limits=LIMITS)
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
        ("wall_timeout", "", Cause.BUILD_TIMEOUT, "took too long: the build was stopped after"),
        ("oom", "", Cause.BUILD_LIMIT, "memory limit"),
    ],
)
def test_how_it_ends_is_told(real: Toolchain, status: str, output: str, cause: Cause, said: str) -> None:
    """The compilers' first error without the folder that they ran in, and limits as those of any build."""
    sandbox = FakeSandbox(exit_facts(status, output=output))  # type: ignore[arg-type]
    found = inline_libraries(inline_layout(_ASKS, real), real, sandbox=sandbox, limits=LIMITS)
    assert found.finding is not None
    assert found.finding.cause is cause
    assert said in found.finding.message
    assert found.libraries == {}


@pytest.mark.slow
def test_what_it_compiled_lies_in_the_package(real: Toolchain, sandbox: object, tmp_path: Path) -> None:
    """The import is real; the library is taken by the extension's name, and the build is cached with it."""
    text = (
        "from torch.utils.cpp_extension import load\n"
        "from pathlib import Path\n"
        "source = Path(__file__).with_name('tiny.cpp')\n"
        "source.write_text('extern \"C\" int three() { return 3; }')\n"
        "load(name='tiny', sources=[str(source)], is_python_module=False, with_cuda=False)\n"
    )
    given = universal({"torch-ext/scale/numbers.py": text + "FACTOR = 1.0\n"})
    built = build(given, "cpu", sandbox=sandbox, toolchain=real, cache=tmp_path)  # type: ignore[arg-type]
    assert built.result.ok, built.result.finding
    assert built.package is not None
    assert (built.package / "_inline" / "tiny.so").read_bytes()[:4] == b"\x7fELF"
    again = build(given, "cpu", sandbox=sandbox, toolchain=real, cache=tmp_path)  # type: ignore[arg-type]
    assert again.result.cache_hit
