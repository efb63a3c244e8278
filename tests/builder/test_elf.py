"""Reading shared libraries: right on real ones, an ElfError on everything else."""

from __future__ import annotations

import random
import re
import struct
from contextlib import suppress

import pytest

from harness.builder.elf import ElfError, SharedLibrary, loaded_libraries, only_in_cuda_torch, unresolved
from harness.builder.toolchain import Toolchain
from tests.fakes.libraries import shared_library

SOURCE = """
#include <math.h>
extern int somewhere_else(int);
extern int maybe(int) __attribute__((weak));
__thread int per_thread;
int data = 3;
static int hidden(int x) { return x; }
const char *word = "aten::mm";
int here(int x) { return hidden(x) + somewhere_else(x) + (maybe ? maybe(x) : 0) + data + per_thread; }
double there(double x) { return sin(x); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with all kinds of symbols, linked with libm."""
    return shared_library(tmp_path_factory.mktemp("elf"), SOURCE, flags=("-lm", "-Wl,-rpath,$ORIGIN/x:/y"))


def test_symbols_are_told_apart(library):
    """Defined, undefined and weak; what is static is not there."""
    symbols = {s.name: s for s in SharedLibrary(library).symbols()}
    assert symbols["here"].defined and symbols["data"].defined and symbols["per_thread"].defined
    assert not symbols["somewhere_else"].defined and not symbols["somewhere_else"].weak
    assert symbols["maybe"].weak and not symbols["maybe"].defined
    assert "hidden" not in symbols and not symbols["sin"].defined


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_every_hash_style_gives_the_same_symbols(style, library, tmp_path):
    """The number of symbols comes from either hash table, and from the relocations."""
    other = shared_library(tmp_path, SOURCE, flags=("-lm", f"-Wl,--hash-style={style}"))
    names = {s.name for s in SharedLibrary(library).symbols()}
    assert {s.name for s in SharedLibrary(other).symbols()} == names


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(200)])
def test_what_is_no_library_is_refused(data, tmp_path):
    """Of whatever length, in memory and as a file."""
    (tmp_path / "a.so").write_bytes(data)
    with pytest.raises(ElfError):
        SharedLibrary(data)
    with pytest.raises(ElfError):
        SharedLibrary.open(tmp_path / "a.so")


def test_a_damaged_library_is_an_elf_error_or_harmless(library):
    """Cut short anywhere, or with any bytes of its tables replaced, it never raises anything else."""
    dice = random.Random(0)
    for cut in range(0, len(library), 97):
        with_error(library[:cut])
    headers = len(library) // 2
    for _ in range(1500):
        damaged = bytearray(library)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(16, headers)
            damaged[at : at + 8] = dice.choice(
                [b"\xff" * 8, bytes(8), dice.randbytes(8), struct.pack("<Q", len(library) - 1)]
            )
        with_error(bytes(damaged))


def with_error(data: bytes) -> None:
    """All that is ever asked of a library; anything but an ElfError fails the test."""
    with suppress(ElfError):
        read = SharedLibrary(data)
        _ = (read.symbols(), read.needed, read.search_path, read.exports())
        read.strings(re.compile(rb"aten::\w+"))


_ONLY_CUDA = """
    _ZN3c104cuda20getCurrentCUDAStreamEa _ZN2at4cuda26getCurrentDevicePropertiesEv
    _ZTVN2at17CUDAGeneratorImplE aoti_torch_get_current_cuda_stream aoti_torch_cuda_mm_out
    torch_c10_cuda_check_msg cublasCreate_v2 ncclAllReduce
"""
_ELSEWHERE = """
    cuInit cudaMalloc cusolverDnCreate THPVariableClass _Z5scalePfi _ZN2at4_ops9not_there4callEv
    aoti_torch_cpu_not_there
"""


def test_symbols_that_only_a_cuda_torch_has():
    """Its namespaces and the libraries that it needs; not the driver, cuSOLVER or Python's side."""
    assert [s for s in _ONLY_CUDA.split() if not only_in_cuda_torch(s)] == []
    assert [s for s in _ELSEWHERE.split() if only_in_cuda_torch(s)] == []


LINKED = """
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
    return SharedLibrary(shared_library(folder, LINKED, flags=flags))


def test_symbols_are_found_where_the_loader_looks(extension, real):
    """In torch, Python and libc; weak ones may be missing, and libtorch_python is not looked at."""
    missing, unproven = unresolved(extension, "cpu", real)
    lacking = {"scale_floats", "THPVariableClass"}
    if real.torch_cuda is None:
        lacking.add("aoti_torch_get_current_cuda_stream")
    assert set(missing) == lacking and unproven == 0


def test_a_cpu_only_torch_leaves_cuda_symbols_open(extension, real):
    """For target cuda they are counted, not condemned; what no torch has is condemned all the same."""
    cpu_only = real.model_copy(update={"torch_cuda": None})
    missing, unproven = unresolved(extension, "cuda", cpu_only)
    assert set(missing) == {"scale_floats", "THPVariableClass"}
    assert unproven == (1 if real.torch_cuda is None else 0)


def test_only_plain_names_are_opened(real, tmp_path):
    """A library that asks for a path outside gets nothing, though the file is there."""
    (tmp_path / "other").mkdir()
    shared_library(tmp_path / "other", "int other(void) { return 1; }")
    path = tmp_path / "other" / "a.so"
    source = "int other(void); int f(void) { return other(); }"
    extension = SharedLibrary(shared_library(tmp_path, source, flags=("-Wl,--no-as-needed", str(path))))
    assert extension.needed[0] == str(path)
    assert loaded_libraries(extension, real)[1] == [str(path)]
    assert unresolved(extension, "cpu", real) == ([], 1), "whatever is missing could be in it"
