"""Finding compilers and torch, and saying what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.builder.build import build
from harness.builder.commands import compile_argv, system_directories
from harness.builder.compiler_output import clean
from harness.builder.headers import HeaderSet, torch_set
from harness.builder.toolchain import (
    MATH_HEADERS,
    TORCH_CUDA_HEADER,
    Toolchain,
    describe_nvcc,
    describe_toolchain,
    find_toolchain,
    toolchain_of_image,
)
from harness.errors import SandboxError
from tests.fakes.projects import fake_toolchain, fetched_headers, planned, project
from tests.fakes.sandbox import FakeSandbox, exit_facts


def fake_nvcc(root: Path, *, libraries: str = "lib64") -> Path:
    """A toolkit whose nvcc is a script that answers the two probes."""
    (root / "bin").mkdir(parents=True)
    (root / "include").mkdir()
    (root / "include/cuda_runtime.h").touch()
    (root / libraries).mkdir()
    (root / libraries / "libcudart.so.13").touch()
    nvcc = root / "bin/nvcc"
    nvcc.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit; fi\n'
        f'echo "#\\$ _NVVM_BRANCH_=nvvm"; echo "#\\$ _HERE_={root}/bin"\n'
    )
    nvcc.chmod(0o755)
    return nvcc


def test_this_machine_is_described_without_importing_torch():
    """In a fresh process: versions are found and torch is not loaded."""
    code = (
        "import sys; from harness.builder.toolchain import find_toolchain; t = find_toolchain();"
        "print(t.torch_version); assert 'torch' not in sys.modules, 'torch was imported'"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    version = pytest.importorskip("torch", reason="needs torch (pip install torch)").__version__
    assert done.stdout.strip() == version


def test_the_record_round_trips_and_hides_paths():
    """Facts and digest say what, not where."""
    found = find_toolchain()
    assert Toolchain.model_validate_json(found.model_dump_json()) == found
    assert not any("/" in value for value in found.facts().values() if "c10/" not in value)
    moved = found.model_copy(update={"gxx": Path("/elsewhere/g++")})
    assert moved.facts() == found.facts()
    assert found.ninja is None or found.ninja.read_bytes()[:4] == b"\x7fELF", "a script needs its interpreter"


def test_cpu_facts_do_not_depend_on_cuda(tmp_path):
    """A new nvcc, other headers or a new nvdisasm rebuild CUDA projects only."""
    old = fake_toolchain(tmp_path, cuda="13.0.48")
    headers = HeaderSet(name="h", root=tmp_path, include=(), digest="0" * 64, sources="")
    changes = {"cuda": fake_toolchain(tmp_path).cuda, "cutlass": (headers,), "disassembler": tmp_path}
    for field, value in changes.items():
        new = old.model_copy(update={field: value})
        assert old.facts("cpu") == new.facts("cpu") and old.facts("cuda") != new.facts("cuda")


def test_a_wrapper_script_leads_to_the_real_nvcc(tmp_path):
    """The root is where nvcc says it lives; PyPI wheels have lib/ where a toolkit has lib64/."""
    real = fake_nvcc(tmp_path / "nvidia/cu13", libraries="lib")
    wrapper = tmp_path / "home/bin/nvcc"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    cuda = find_toolchain({"CUDA_HOME": str(tmp_path / "home"), "PATH": "/usr/bin"}).cuda
    assert cuda is not None and (cuda.nvcc, cuda.root, cuda.release) == (real, real.parents[1], (13, 0))
    assert cuda.cudart == cuda.root / "lib/libcudart.so.13"


def test_a_broken_nvcc_is_passed_over(tmp_path):
    """CUDA_HOME that does not work is no reason to give up."""
    nvcc = tmp_path / "bin/nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    nvcc.chmod(0o755)
    assert describe_nvcc(nvcc) is None
    found = find_toolchain({"CUDA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}).cuda
    assert found is None or found.root != tmp_path


def test_what_is_missing_is_named_with_the_command(tmp_path):
    """Each gap has its own line; the CPU target does not need CUDA."""
    whole = fake_toolchain(tmp_path)
    assert whole.missing("cpu") is None and whole.missing("cuda") is None
    gaps = {
        "gxx": "apt-get install g++",
        "ninja": "pip install ninja",
        "torch_root": "pip install torch",
        "python_include": "python3-dev",
    }
    for field, part in gaps.items():
        for target in ("cpu", "cuda"):
            assert part in (whole.model_copy(update={field: None}).missing(target) or "")
    old = whole.model_copy(update={"gxx_version": "g++ (Ubuntu 9.4.0-1ubuntu1) 9.4.0"})
    assert "too old for C++20" in (old.missing("cpu") or "")
    without = whole.model_copy(update={"cuda": None})
    assert without.missing("cpu") is None
    assert "pip install 'liftbench[cuda]'" in (without.missing("cuda") or "")
    assert whole.cuda is not None
    bare = whole.model_copy(update={"cuda": whole.cuda.model_copy(update={"cudart": None})})
    assert "no libcudart" in (bare.missing("cuda") or "")
    other = whole.model_copy(update={"torch_cuda": "12.8"})
    assert "needs nvcc 12.8" in (other.missing("cuda") or ""), "two CUDA runtimes do not mix"


def test_nvcc_must_know_the_compiler(tmp_path):
    """nvcc's own header names the newest g++; a newer one is refused before anything is compiled."""
    nvcc = fake_nvcc(tmp_path / "toolkit")
    header = tmp_path / "toolkit/include/crt/host_config.h"
    header.parent.mkdir()
    header.write_text("#error -- unsupported GNU version! gcc versions later than 15 are not supported!")
    toolchain = fake_toolchain(tmp_path).model_copy(update={"cuda": describe_nvcc(nvcc)})
    new = toolchain.model_copy(update={"gxx_version": "g++ (GCC) 16.1.0"})
    assert toolchain.missing("cuda") is None and new.missing("cpu") is None
    assert "g++-15" in (new.missing("cuda") or "")


def test_fetched_headers_replace_the_stand_ins(tmp_path):
    """A CPU-only torch gets stand-ins if nothing was fetched; a CUDA build of torch never does."""
    nvcc = fake_nvcc(tmp_path / "toolkit")
    env = {
        "CUDA_HOME": str(nvcc.parents[1]),
        "PATH": "/usr/bin:/bin",
        "LIFTBENCH_HEADERS": str(tmp_path / "headers"),
    }
    bare = find_toolchain(env)
    if bare.torch_version is None or bare.torch_cuda is not None:
        assert bare.stubs == ()
        pytest.skip("needs a CPU-only torch")
    assert bare.headers == () and {TORCH_CUDA_HEADER, "cublas_v2.h"} <= set(bare.stubs)
    torch = torch_set(bare.torch_version)
    fetched_headers(tmp_path / "headers", "cuda-13.0", *(f"include/{header}" for header in MATH_HEADERS))
    fetched_headers(tmp_path / "headers", torch, f"include/{TORCH_CUDA_HEADER}")
    for other in ("cuda-12.8", "torch-0.1"):
        fetched_headers(tmp_path / "headers", other, "include/x.h")
    found = find_toolchain(env)
    assert [headers.name for headers in found.headers] == ["cuda-13.0", torch] and found.stubs == ()
    assert "/" not in found.facts()["headers"]
    assert found.facts("cpu") == bare.facts("cpu")
    assert tmp_path / "headers" / torch / "include" in found.readable("cuda")
    assert tmp_path / "headers" / torch / "include" not in found.readable("cpu")


def test_fetched_headers_stand_behind_the_toolkits_own(tmp_path):
    """They fill gaps and hide nothing; their folders leave no trace in the objects."""
    headers = fetched_headers(tmp_path / "headers", "cuda-13.0", "include/cufft.h")
    toolchain = fake_toolchain(tmp_path).model_copy(update={"headers": (headers,), "stubs": ()})
    layout = planned(project(), "cuda", toolchain)
    places = system_directories(layout, toolchain)
    assert places[-2:] == [str(tmp_path / "cuda/include"), str(headers.root / "include")]
    argv = compile_argv(layout.units.units[-1], layout, toolchain)
    assert f"-ffile-prefix-map={headers.root}=cuda-13.0" in argv
    assert (
        clean(f"{headers.root}/include/cufft.h:1: error", toolchain) == "cuda-13.0/include/cufft.h:1: error"
    )


@pytest.fixture(scope="module")
def described() -> bytes:
    """This machine, described as an image is."""
    return describe_toolchain().encode()


def test_a_description_gives_the_same_toolchain_with_another_root(described, tmp_path):
    """Paths stay those of the image; only where they are read differs, and the facts do not."""
    here, there = find_toolchain(), toolchain_of_image(described, tmp_path)
    assert there.model_copy(update={"root": here.root}) == here
    assert there.root == tmp_path and there.in_image and not here.in_image
    assert there.facts() == here.facts()
    evil = toolchain_of_image(changed(described, root="/etc"), tmp_path)
    assert evil.root == tmp_path, "a description does not say where its files are read"
    assert there.local(Path("/usr/lib")) == tmp_path / "usr/lib" and here.local(Path("/usr")) == Path("/usr")


def test_nothing_of_this_machine_is_shown_to_a_job_in_an_image(tmp_path):
    """A directory of the same name is another one: the image brings its own."""
    toolchain = fake_toolchain(tmp_path).model_copy(update={"disassembler": tmp_path / "bin"})
    assert toolchain.readable("cuda") != [] and toolchain.readable_tools() == [tmp_path / "bin"]
    there = toolchain.model_copy(update={"root": tmp_path / "view"})
    assert there.readable("cuda") == [] and there.readable_tools() == []
    sandbox = FakeSandbox(exit_facts("oom"))
    build(project(), "cpu", sandbox=sandbox, toolchain=there, cache=tmp_path / "cache")
    assert sandbox.jobs and all(tmp_path / "torch" not in job.readable for job in sandbox.jobs)
    assert all("/usr" not in map(str, job.readable) for job in sandbox.jobs)


def changed(described: bytes, **fields: object) -> bytes:
    """A description in which the toolchain says something else."""
    values = json.loads(described)
    values["toolchain"] |= fields
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"python": "python3"},
        {"gxx": "/usr/bin/../../evil/g++"},
        {"libraries": ["lib"]},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(fields, described, tmp_path):
    """Relative paths, paths through a parent, unknown fields: make the image again."""
    with pytest.raises(SandboxError, match="make image"):
        toolchain_of_image(changed(described, **fields), tmp_path)
