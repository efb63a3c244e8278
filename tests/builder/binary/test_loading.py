"""Which libraries stand beside an extension, and which of its symbols none of them has."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.elf import (
    MAX_UNDEFINED,
    ElfError,
    LoadedLibraries,
    SharedLibrary,
    only_in_cuda_torch,
    unresolved,
)
from harness.builder.toolchain import Toolchain
from tests.fakes.libraries import shared_library

ONLY_CUDA = {
    "_ZN3c104cuda20getCurrentCUDAStreamEa": True,
    "_ZN2at4cuda26getCurrentDevicePropertiesEv": True,
    "_ZTVN2at17CUDAGeneratorImplE": True,
    "aoti_torch_get_current_cuda_stream": True,
    "aoti_torch_cuda_mm_out": True,
    "torch_c10_cuda_check_msg": True,
    "cublasCreate_v2": True,
    "ncclAllReduce": True,
    "cuInit": False,
    "cudaMalloc": False,
    "cusolverDnCreate": False,
    "THPVariableClass": False,
    "_Z5scalePfi": False,
    "_ZN2at4_ops9not_there4callEv": False,
    "aoti_torch_cpu_not_there": False,
}


@pytest.mark.parametrize("symbol", ONLY_CUDA)
def test_what_only_a_cuda_torch_has(symbol):
    """Its namespaces and the libraries that it needs; not the driver, cuSOLVER or Python's side."""
    assert only_in_cuda_torch(symbol) == ONLY_CUDA[symbol]


SOURCE = """
extern int scale_floats(float *, long);
extern int perhaps(void) __attribute__((weak));
extern void *PyModule_Create2(void *, int);
extern int aoti_torch_get_dim(void *, long *);
extern int aoti_torch_get_current_cuda_stream(int, void **);
extern void *THPVariableClass;
extern double cos(double);
double f(float *x) {
  PyModule_Create2(0, 0);
  aoti_torch_get_dim(0, 0);
  aoti_torch_get_current_cuda_stream(0, 0);
  return (perhaps ? perhaps() : 0) + scale_floats(x, 1) + cos(1.0) + (THPVariableClass != 0);
}
"""


@pytest.fixture(scope="module")
def extension(real: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> SharedLibrary:
    """Linked with torch as an extension is."""
    assert real.torch_root is not None
    folder = tmp_path_factory.mktemp("extension")
    flags = (f"-L{real.torch_root / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lm")
    return SharedLibrary(shared_library(folder, SOURCE, flags=flags))


def test_symbols_are_found_where_the_loader_looks(extension, real):
    """In torch, Python and libc; weak ones may be missing, and libtorch_python is not looked at."""
    missing, unproven = unresolved(extension, "cpu", real)
    lacking = {"scale_floats", "THPVariableClass"}
    if real.torch_is_cpu_only:
        lacking.add("aoti_torch_get_current_cuda_stream")
    assert set(missing) == lacking and unproven == 0


def test_a_cpu_only_torch_leaves_cuda_symbols_open(extension, real):
    """For target cuda they are counted, not condemned; what no torch has is condemned all the same."""
    cpu_only = real.model_copy(update={"torch_cuda": None})
    missing, unproven = unresolved(extension, "cuda", cpu_only)
    assert set(missing) == {"scale_floats", "THPVariableClass"}
    assert unproven == (1 if real.torch_is_cpu_only else 0)


def test_a_library_that_is_not_there_leaves_everything_open(real, tmp_path):
    """Whatever is missing could be in it."""
    (tmp_path / "other").mkdir()
    shared_library(tmp_path / "other", "int other(void) { return 1; }")
    (tmp_path / "other" / "a.so").rename(tmp_path / "libother.so")
    flags = (f"-L{tmp_path}", "-Wl,--no-as-needed", "-lother")
    extension = SharedLibrary(
        shared_library(tmp_path, "int other(void); int f(void) { return other(); }", flags=flags)
    )
    assert LoadedLibraries(extension, real).missing == ["libother.so"]
    assert unresolved(extension, "cpu", real) == ([], 1)


def test_only_plain_names_are_opened(real, tmp_path):
    """A library that asks for a path outside gets nothing, though the file is there."""
    (tmp_path / "other").mkdir()
    shared_library(tmp_path / "other", "int other(void) { return 1; }")
    path = tmp_path / "other" / "a.so"
    source = "int other(void); int f(void) { return other(); }"
    extension = SharedLibrary(shared_library(tmp_path, source, flags=("-Wl,--no-as-needed", str(path))))
    assert extension.needed[0] == str(path)
    assert LoadedLibraries(extension, real).missing == [str(path)]


def test_a_library_that_asks_for_too_much_is_refused(real, tmp_path):
    """The trusted side does not spend minutes on one."""
    count = MAX_UNDEFINED + 1
    source = "".join(f"extern int f{i}; int *p{i} = &f{i};\n" for i in range(count))
    extension = SharedLibrary(shared_library(tmp_path, source))
    with pytest.raises(ElfError, match="more than 20000 symbols"):
        unresolved(extension, "cpu", real)


def test_the_search_of_a_library_includes_its_own_path(real):
    """torch's libraries name $ORIGIN: all that this torch needs is found."""
    assert real.torch_root is not None
    library = SharedLibrary.open(Path(real.torch_root / "lib" / "libtorch_cpu.so"))
    assert LoadedLibraries(library, real).missing == []
