"""The calls into NVIDIA's driver, as cuda.h has them, what a failure says, and the known kernel."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.device import cuda as ours
from harness.device import known_kernel as known
from harness.device.cuda import SIGNATURES, CudaError, Device, Driver
from harness.device.known_kernel import KnownKernel
from harness.errors import DeviceError
from harness.judge import device_kernels
from harness.worker import cuda_driver as worker
from tests.fakes import judge_kernels
from tests.fakes.cuda_driver import FakeDriver

INCLUDES = [Path(shutil.which("nvcc") or "nvcc").resolve().parent.parent / "include"]
INCLUDES.append(Path("/usr/local/cuda/include"))
INCLUDE = next((folder for folder in INCLUDES if (folder / "cuda.h").is_file()), INCLUDES[-1])
OLD = {"cuEventElapsedTime"}
"""Called in their first version on purpose."""

TYPES = {
    "int": ctypes.c_int,
    "CUdevice": ctypes.c_int,
    "CUresult": ctypes.c_int,
    "CUdevice_attribute": ctypes.c_int,
    "CUmemAllocationHandleType": ctypes.c_int,
    "CUmemAllocationGranularity_flags": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "unsigned char": ctypes.c_ubyte,
    "size_t": ctypes.c_size_t,
    "unsigned long long": ctypes.c_ulonglong,
    "CUdeviceptr": ctypes.c_ulonglong,
    "CUmemGenericAllocationHandle": ctypes.c_ulonglong,
}
POINTERS = {"CUcontext", "CUstream", "CUmodule", "CUfunction", "CUevent"}
ALL = list(SIGNATURES.items())


@pytest.fixture(scope="module")
def header() -> str:
    if not (INCLUDE / "cuda.h").is_file():
        pytest.skip("needs cuda.h (a CUDA toolkit)")
    return re.sub(r"/\*.*?\*/", "", (INCLUDE / "cuda.h").read_text(), flags=re.S)


def parameters(header: str, name: str) -> Iterator[str]:
    found = re.search(rf"CUresult CUDAAPI {name}\(([^)]*)\);", header)
    assert found is not None, name
    for parameter in re.sub(r"\s+", " ", found[1]).split(","):
        if parameter.strip() == "void":
            continue
        kind = re.sub(r"\w+$", "", parameter.strip()) if "*" in parameter else parameter.rsplit(" ", 1)[0]
        yield kind.replace("const ", "").strip()


@pytest.mark.parametrize(("name", "types"), ALL, ids=[name for name, _ in ALL])
def test_signatures_are_those_of_the_header(header: str, name: str, types: tuple[type, ...]) -> None:
    """Every argument has the width and kind that cuda.h gives it; judge and worker share the table."""
    wanted = list(parameters(header, re.sub(r"_v\d$", "", name)))
    assert len(wanted) == len(types)
    for kind, one in zip(wanted, types, strict=True):
        if kind.endswith("*") or kind in POINTERS:
            assert one in (ctypes.c_void_p, ctypes.c_char_p), kind
        elif kind == "CUipcMemHandle":
            assert ctypes.sizeof(one) == 64
        else:
            assert one is TYPES[kind], kind


def test_versions_are_those_of_the_header(header: str) -> None:
    """The symbol that is called is the one that cuda.h makes of a name, but for those meant to be older."""
    for name, _ in ALL:
        base = re.sub(r"_v\d$", "", name)
        found = re.search(rf"#define {base}\s+(?:__CUDA_API_PT[DS][SZ]\()?(\w+)", header)
        symbol = base if found is None else found[1]
        assert name == (base if base in OLD else symbol)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_structures_are_those_of_the_header(header: str, tmp_path: Path) -> None:
    """Sizes, offsets and constants are what a C compiler makes of cuda.h."""
    pairs = [
        (worker.AllocationProperties, "CUmemAllocationProp", ["type", "requestedHandleTypes", "location",
         "win32HandleMetaData", "allocFlags"]),
        (worker.Location, "CUmemLocation", ["type", "id"]),
        (worker.Access, "CUmemAccessDesc", ["location", "flags"]),
        (worker.IpcHandle, "CUipcMemHandle", ["reserved"]),
    ]  # fmt: skip
    checks = []
    for structure, name, fields in pairs:
        checks.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
        for (own, *_), theirs in zip(structure._fields_, fields, strict=True):
            offset = getattr(structure, own).offset
            checks.append(f'_Static_assert(offsetof({name}, {theirs}) == {offset}, "{name}.{theirs}");')
    constants = {
        "CU_MEM_ALLOCATION_TYPE_PINNED": worker.PINNED,
        "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": worker.POSIX_DESCRIPTOR,
        "CU_MEM_LOCATION_TYPE_DEVICE": worker.ON_DEVICE,
        "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": worker.READ_WRITE,
        "CU_MEM_ALLOC_GRANULARITY_MINIMUM": ours.GRANULARITY_MINIMUM,
        "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS": worker.LAZY_PEER,
        "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": ours.L2_CACHE_BYTES,
        "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": ours.VIRTUAL_MEMORY,
        "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": ours.POSIX_EXPORT,
        "CU_DEVICE_ATTRIBUTE_MPS_ENABLED": ours.MPS_ENABLED,
        "CUDA_ERROR_NOT_READY": ours._NOT_READY,
        "CUDA_ERROR_OUT_OF_MEMORY": ours.OUT_OF_MEMORY,
        "CUDA_ERROR_NOT_SUPPORTED": ours.NOT_SUPPORTED,
    }
    checks += [f'_Static_assert({name} == {value}, "{name}");' for name, value in constants.items()]
    source = tmp_path / "check.c"
    source.write_text("#include <stddef.h>\n#include <cuda.h>\n" + "\n".join(checks))
    command = ["gcc", "-fsyntax-only", "-I", INCLUDE, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (2, "CUDA_ERROR_OUT_OF_MEMORY (2)"),
        (700, "the context is lost: end this process"),
        (4242, "unknown (4242)"),
    ],
)
def test_a_failed_call_says_which_why_and_what_to_do(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, code: int, says: str
) -> None:
    """The error names the call and the result, and a lost context is known as such."""
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"cuInit={code}")
    with pytest.raises(CudaError, match=r"^cuInit failed: ") as caught:
        driver.call("cuInit", 0)
    assert says in str(caught.value)
    assert caught.value.code == code


def test_a_driver_that_lacks_functions_is_too_old(tmp_path: Path) -> None:
    """What it lacks is named."""
    old = tmp_path / "libold.so"
    source = "int cuInit(unsigned flags) { return (int)flags; }"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(old)]
    subprocess.run(command, input=source, text=True, check=True)
    with pytest.raises(DeviceError, match=r"has no .*cuDriverGetVersion.*too old"):
        Driver(str(old))


PTX = [
    Path(known.__file__).with_name("known.ptx"),
    Path(device_kernels.__file__).with_name("device_kernels.ptx"),
]
_ANY = random.SystemRandom().randrange(1 << 12)


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 100, pytest.param(_ANY, id="any")])
def test_the_closed_form_is_what_the_loop_leaves(gpu: Device, rounds: int) -> None:
    """Integers and exact floats end where their closed forms say, after any number of rounds."""
    with closing(KnownKernel(gpu, count=1000, rounds=rounds)) as kernel:
        run = kernel.run()
    assert run.ok
    assert run.microseconds >= 0.0


def test_wrong_words_are_seen(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that does one round too many is not healthy."""
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA_WRONG", "1")
    with closing(KnownKernel(gpu, count=256, rounds=10)) as kernel:
        assert not kernel.run().ok


def test_tuning_aims_at_a_time(gpu: Device) -> None:
    """Twice the target is about twice the rounds; they never leave their bounds."""
    with closing(KnownKernel(gpu, count=64, rounds=100)) as kernel:
        kernel.tune(target_us=0.0)
        assert kernel.rounds == 1
        kernel.tune(target_us=1e12)
        assert kernel.rounds == 1 << 20


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuLaunchKernel", "cuEventQuery"])
def test_a_device_that_cannot_launch_is_an_error(
    gpu: Device, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """That is no wrong result: it is a DeviceError that names the call, and nothing stays allocated."""
    before = driver.live
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{call}=700")
    with pytest.raises(CudaError, match=f"^{call} failed"), closing(KnownKernel(gpu, count=64)) as kernel:
        kernel.run()
    assert driver.live == before


def test_a_kernel_that_does_not_end_is_an_error(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge does not wait for ever on a device that hangs."""
    with closing(KnownKernel(gpu, count=64, deadline_s=0.0)) as kernel:
        monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", "cuEventQuery=600")
        with pytest.raises(DeviceError, match=r"did not end within 0 s.*gpu-reset"):
            kernel.run()


@pytest.mark.parametrize("ptx", PTX, ids=lambda path: path.stem)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc (a CUDA toolkit)")
def test_the_ptx_is_what_the_source_compiles_to(ptx: Path) -> None:
    """It is its source by ptx.sh, but for what compilers of other versions write differently."""
    release = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    if "release 13.0" not in release:
        pytest.skip("the text is that of nvcc 13.0")
    command = ["sh", Path(known.__file__).with_name("ptx.sh"), ptx.with_suffix(".cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    of_its_path = re.compile(r"_INTERNAL_[0-9a-f]{8}_")
    assert of_its_path.sub("", done.stdout) == of_its_path.sub("", ptx.read_text())


@pytest.mark.parametrize("ptx", PTX, ids=lambda path: path.stem)
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas (a CUDA toolkit)")
def test_the_ptx_assembles_for_hopper(ptx: Path, tmp_path: Path) -> None:
    """ptxas takes it for sm_90, in the version of the language that drivers before CUDA 13 know."""
    assert ".version 7.8\n" in ptx.read_text()
    command = ["ptxas", "-arch=sm_90", "-o", tmp_path / "made.cubin", ptx]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", judge_kernels.CHECKS, ids=lambda check: check.__name__[6:])
def test_the_judges_kernels(gpu: Device, check: Any) -> None:
    """Their sources do on the host what they say; another test runs their PTX."""
    judge_kernels.run(check, gpu)
