"""Names of symbols: what they belong to, without and with c++filt."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.symbol_names import MAX_DEMANGLED, demangled, last_part, qualified
from harness.builder.toolchain import Toolchain
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.projects import fake_toolchain
from tests.fakes.sandbox import FakeSandbox, exit_facts

NAMES = {
    "memcpy": "memcpy",
    "_Z11fill_floatsPflf": "fill_floats",
    "_ZN2at4_ops2mm4callERKNS_6TensorES4_": "at::_ops::mm::call",
    "_ZNK2at10TensorBase8data_ptrIfEEPT_v": "at::TensorBase::data_ptr",
    "_ZN3c104cuda20getCurrentCUDAStreamEa": "c10::cuda::getCurrentCUDAStream",
    "_ZN5torch11CppFunctionD1Ev": "torch::CppFunction::~CppFunction",
    "_ZN5torch7LibraryC2ENS0_4KindENSt7__cxx1112basic_stringIcEE": "torch::Library::Library",
    "_ZTVN2at14TensorIteratorE": "at::TensorIterator",
    "_ZGVZN3foo3barEvE1x": "foo::bar",
    "_ZNSt6threadC1EOS_": "std::thread::thread",
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateE": "std::thread::_M_start_thread",
    "_ZNO5torch7Library4_defEv": "torch::Library::_def",
    "_ZN12_GLOBAL__N_13runEv": "(anonymous)::run",
    "_ZL4filei": "file",
}


@pytest.mark.parametrize("symbol", NAMES)
def test_a_mangled_name_says_what_it_belongs_to(symbol):
    """Namespaces, classes and the function; no arguments."""
    assert qualified(symbol) == NAMES[symbol]


@pytest.mark.parametrize(
    "symbol", ["_Z", "_Z99999x", "_ZN5torchE9999999", "_ZNK", "_Z0", "_ZN1", "_Zls", "_ZN" + "1a" * 999]
)
def test_nonsense_is_left_alone(symbol):
    """A hostile name neither raises nor grows."""
    assert len(qualified(symbol)) <= 3 * len(symbol)


def test_the_bare_name():
    """For finding another function of the same name."""
    assert (last_part("_ZN4demo5scaleEi"), last_part("scale")) == ("scale", "scale")


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
    """A tool that is missing or babbles is no failure."""
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
