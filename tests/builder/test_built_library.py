"""What a library calls, seen in real libraries; and that hostile ones are bounded."""

from __future__ import annotations

import pytest

from harness.builder.built_library import binary_calls
from harness.builder.toolchain import Toolchain
from harness.records import BinaryCalls
from tests.fakes.libraries import shared_library


def calls_of(real: Toolchain, tmp_path, source: str, **how) -> BinaryCalls:
    """The evidence in a library of one C++ file, for the cuda target."""
    found = binary_calls(shared_library(tmp_path, source, cxx=True, **how), "cuda", real)
    assert found is not None
    return found


SOURCE = """
#include <dlfcn.h>
namespace at { struct Tensor {}; namespace _ops {
  struct mm { static Tensor call(const Tensor&, const Tensor&); };
  struct empty_like { static Tensor call(const Tensor&); };
} }
extern "C" int cublasCreate_v2(void**);
extern "C" int cudaDeviceSynchronize();
extern "C" int torch_call_dispatcher(const char*, const char*, void*, unsigned long);
extern "C" float expf(float);
extern "C" float f(float x) {
  at::Tensor t;
  at::_ops::mm::call(t, at::_ops::empty_like::call(t));
  cublasCreate_v2(nullptr);
  cudaDeviceSynchronize();
  torch_call_dispatcher("aten::softmax", "int", nullptr, 0);
  torch_call_dispatcher("aten::view", "", nullptr, 0);
  dlsym(nullptr, "x");
  return expf(x);
}
"""


def test_every_class_has_its_names(real, tmp_path):
    """Called directly or by name; mathematical functions are no evidence."""
    calls = calls_of(real, tmp_path, SOURCE)
    assert calls.compute == ("at::_ops::mm::call", "aten::softmax (by name)")
    assert calls.library == ("cublasCreate_v2",)
    assert calls.dispatcher == ("torch_call_dispatcher",)
    assert calls.tensor == ("at::_ops::empty_like::call", "aten::view (by name)")
    assert calls.runtime == ("cudaDeviceSynchronize",)
    assert calls.system == ("dlsym",)
    assert calls.flags == ("calls PyTorch operators", "calls a library", "loads code at run time")
    assert set(calls.borrowed) == {*calls.compute, *calls.library, *calls.dispatcher, "dlsym"}


def test_operator_names_count_only_beside_a_dispatcher(real, tmp_path):
    """A string that nothing could use is only a string."""
    calls = calls_of(real, tmp_path, 'extern "C" const char* f() { return "aten::softmax"; }')
    assert calls == BinaryCalls() and calls.flags == ()


@pytest.mark.parametrize(
    "call",
    [
        'torch_call_dispatcher(name, "", nullptr, 0)',
        'torch_call_dispatcher("aten::view", name, PyObject_CallObject(nullptr, nullptr), 0)',
    ],
)
def test_a_call_by_an_unknown_name_is_flagged(call, real, tmp_path):
    """A name that comes from elsewhere, or from Python, may be any operator's."""
    source = (
        'extern "C" int torch_call_dispatcher(const char*, const char*, void*, unsigned long);\n'
        'extern "C" void* PyObject_CallObject(void*, void*);\n'
        f'extern "C" void f(const char* name) {{ {call}; }}'
    )
    assert calls_of(real, tmp_path, source).flags == ("may call any operator",)


def test_a_mismatch_names_both_sides(real, tmp_path):
    """Declared with other arguments than defined, or with C linkage, or not defined at all."""
    source = """
    void scale(float*, long, double);
    void scale(float* x, long n, float a) { x[n] = a; }
    namespace demo { void launch(int); }
    extern "C" void launch(int) {}
    void forgotten(int);
    extern "C" int cuInit(unsigned);
    extern "C" void f(float* x) { scale(x, 1, 2.0); demo::launch(1); forgotten(1); cuInit(0); }
    """
    assert calls_of(real, tmp_path, source).unresolved == (
        "cuInit: the CUDA driver is not linked; ask cudaGetDriverEntryPointByVersion for it",
        "demo::launch: called as _ZN4demo6launchEi, but defined with other parameters as launch",
        "forgotten: declared and called, but defined in no file that build.toml lists",
        "scale: called as _Z5scalePfld, but defined with other parameters as _Z5scalePflf",
    )


@pytest.mark.parametrize("data", [b"", b"\x7fELF...", b"\x7fELF\x02\x01\x01" + bytes(100)])
def test_what_cannot_be_read_is_none(data, real):
    """Not a failure: there is no evidence."""
    assert binary_calls(data, "cpu", real) is None
