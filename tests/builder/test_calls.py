"""What a library calls, seen in real libraries; and that hostile ones are bounded."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from harness.builder.binary import MANYLINUX, MAX_DEMANGLED, PYTHON_ABI, abi_verdict, binary_calls, demangled
from harness.builder.toolchain import Toolchain
from harness.records import BinaryCalls
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.libraries import shared_library
from tests.fakes.projects import fake_toolchain
from tests.fakes.sandbox import FakeSandbox, exit_facts

needs_abi_check = pytest.mark.skipif(
    importlib.util.find_spec("kernel_abi_check") is None, reason="kernel-abi-check is not installed"
)


def calls_of(real: Toolchain, tmp_path, source: str, **how) -> BinaryCalls:
    """The evidence in a library of one C++ file, for the cuda target."""
    found = binary_calls(
        shared_library(tmp_path, source, cxx=True, **how), "cuda", real, SandboxPool(LocalBackend())
    )
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
        'demo::launch(int): declared like this where it is called, but defined as extern "C" launch',
        "forgotten(int): declared and called, but defined in no file that build.toml lists",
        "scale(float*, long, double): declared like this where it is called, but defined as "
        "scale(float*, long, float)",
    )


def test_without_cxxfilt_the_names_remain(real, tmp_path):
    """The message is poorer, the verdict the same."""
    library = shared_library(tmp_path, "void g(int); void f() { g(1); }", cxx=True)
    broken = FakeSandbox(exit_facts("nonzero", "sh: c++filt: not found", 127))
    calls = binary_calls(library, "cpu", real, broken)
    assert calls is not None and calls.unresolved[0].startswith("g: declared and called")


def test_a_library_without_end_is_cut_short(real, tmp_path):
    """A hundred names of a class, and how many more."""
    names = [f"cublasFunction{i:03}" for i in range(150)]
    source = "".join(f'extern "C" void {n}();' for n in names)
    source += 'extern "C" void f() {' + "".join(f"{n}();" for n in names) + "}"
    calls = calls_of(real, tmp_path, source)
    assert len(calls.library) == 101 and calls.library[-1] == "and 50 more"


@pytest.mark.parametrize("data", [b"", b"\x7fELF...", b"\x7fELF\x02\x01\x01" + bytes(100)])
def test_what_cannot_be_read_is_none(data, real):
    """And no tool is started for it."""
    idle = FakeSandbox(exit_facts("sandbox_error"))
    assert binary_calls(data, "cpu", real, idle) is None and idle.jobs == []


# --- c++filt ---------------------------------------------------------------------------------


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """One that knows where a compiler would be."""
    return fake_toolchain(tmp_path)


def test_one_child_demangles_all(toolchain):
    """Inside the sandbox, as a job of the build's role; only what changed is returned."""
    sandbox = FakeSandbox(exit_facts("ok", "f(int)\n_Zodd\n", 0))
    assert demangled(["_Z1fi", "memcpy", "_Zodd", "_Z1fi"], toolchain, sandbox) == {"_Z1fi": "f(int)"}
    (job,) = sandbox.jobs
    assert job.role == "build" and "c++filt" in job.argv[-1] and sandbox.processes[0].closed


@pytest.mark.parametrize(
    "facts", [exit_facts("ok", "only one line\n", 0), exit_facts("nonzero", "sh: c++filt: not found", 127)]
)
def test_without_cxxfilt_names_stay_as_they_are(facts, toolchain):
    """A missing tool or unexpected output is no failure."""
    assert demangled(["_Z1fi", "_Z1gi"], toolchain, FakeSandbox(facts)) == {}


def test_names_that_could_end_a_line_are_not_passed_on(toolchain):
    """And no more than 200 are, however many a library has."""
    sandbox = FakeSandbox(exit_facts("ok", "", 0))
    assert demangled(["_Z1f\n_Z1g", "_Z$(x)`y`", "plain"], toolchain, sandbox) == {}
    assert sandbox.jobs == []
    many = [f"_Z1f{i}" for i in range(500)]
    answer = FakeSandbox(exit_facts("ok", "x\n" * MAX_DEMANGLED, 0))
    assert len(demangled(many, toolchain, answer)) == MAX_DEMANGLED


def test_the_real_cxxfilt(toolchain):
    """With arguments, where binutils is installed."""
    if not Path("/usr/bin/c++filt").exists():
        pytest.skip("no c++filt (apt-get install binutils)")
    names = demangled(["_Z11fill_floatsPflf"], toolchain, SandboxPool(LocalBackend()))
    assert names == {"_Z11fill_floatsPflf": "fill_floats(float*, long, float)"}


# --- ABI -------------------------------------------------------------------------------------


def library(tmp_path: Path, source: str) -> bytes:
    """A shared library of one C file."""
    (tmp_path / "a.c").write_text(source)
    out = tmp_path / "a.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", out, tmp_path / "a.c"], check=True)
    return out.read_bytes()


@needs_abi_check
def test_a_plain_library_is_fine(tmp_path):
    """Neither Python nor a new libc is asked for."""
    verdict = abi_verdict(library(tmp_path, "int f(void) { return 1; }"))
    assert verdict == f"ok: Python >= {PYTHON_ABI}; ok: {MANYLINUX}"


@needs_abi_check
def test_a_symbol_outside_the_limited_api_is_named(tmp_path):
    """PyUnicode_AsUTF8AndSize is in the limited API from 3.10 on only."""
    source = "extern char *PyUnicode_AsUTF8AndSize(void *, long *);\n"
    verdict = abi_verdict(
        library(tmp_path, source + "char *f(void *p) { return PyUnicode_AsUTF8AndSize(p, 0); }")
    )
    assert verdict is not None and verdict.startswith(f"not in Python's limited API of {PYTHON_ABI}: PyUni")


@needs_abi_check
def test_a_symbol_of_a_newer_libc_is_named(tmp_path):
    """The version that a symbol asks for is past manylinux_2_28; where this libc is old, nothing can be."""
    source = "#include <stddef.h>\nextern int pthread_attr_setsigmask_np(void *, void *);\n"
    source += "int g(void) { return pthread_attr_setsigmask_np(NULL, NULL); }"
    verdict = abi_verdict(library(tmp_path, source))
    assert verdict is not None and f"newer than {MANYLINUX}" in verdict
    assert "pthread_attr_setsigmask_np GLIBC 2.32" in verdict


@needs_abi_check
def test_rubbish_has_no_abi():
    """A file that is no library is reported, and nothing is claimed."""
    assert abi_verdict(b"\x7fELF rubbish") == "the check itself failed"
