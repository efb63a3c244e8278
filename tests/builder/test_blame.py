"""Nothing that a project writes makes its failure ours: the property, over generated output.

What a project can decide is drawn: every word that tools print, exit codes and signals. What it cannot decide
is fixed: the sandbox works, and a project of ours is built in it.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="hypothesis is not installed (pip install 'liftbench[dev]')")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builder.blame import NinjaRun
from harness.builder.build import build
from harness.builder.diagnostics import DIAGNOSTICS_LIMIT
from harness.builder.load_inline import inline_libraries
from harness.builder.toolchain import Toolchain
from harness.builder.translation_units import Units
from harness.errors import SandboxError
from harness.outcome import Verdict
from harness.records import Diagnostic, Finding, Target
from sandboxes.job import ExitFacts, Limits, Status
from sandboxes.registry import open_sandbox
from tests.fakes.projects import FILES, fake_toolchain, planned, project
from tests.fakes.sandbox import FakeSandbox, exit_facts
from tests.fakes.toml_documents import FUZZ

STUDENTS = {Verdict.BUILD_FAILED, Verdict.TIMED_OUT}
LIMITS = Limits(wall_s=600.0, memory_bytes=8 << 30)
OBJECTS = ["obj/kernels/fill.cpp/unit.o", "lib/x.abi3.so", "obj/a b.o"]


_HEADERS = st.sampled_from(
    [
        "/etc/shadow", "/proc/self/mem", "torch/all.h", "Python.h", "x/../../etc/passwd", "../a.h",
        "cublas_v2.h", "c10/cuda/impl/cuda_cmake_macros.h", "fill.h", "a b.h", "é.h", "",
    ]
)  # fmt: skip
_FILES = st.sampled_from(
    [
        "source/kernels/fill.cpp", "/usr/include/stdio.h", "/etc/shadow", "torch/include/torch/all.h",
        "<stdin>", "x",
    ]
)  # fmt: skip
_SAID = st.sampled_from(
    [
        "/bin/sh: 1: /usr/bin/g++: not found", "ninja: error: loading 'build.ninja'",
        "launcher: the sandbox could not start a process",
        "SandboxError: the sandbox hides part of the toolchain", "harness.errors.HarnessBug: a bug",
        "g++: fatal error: Killed signal terminated program cc1plus", "Killed",
        "nvcc error : 'cicc' died due to signal 9",
        "internal compiler error: Segmentation fault signal terminated program cc1plus",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "fatal error: error writing to /tmp/x.s: No space left on device", "Read-only file system",
        "error: 'cublasHandle_t' was not declared in this scope",
        "collect2: error: ld returned 1 exit status",
        "/usr/bin/ld: cannot find -lc10: No such file or directory", "Traceback (most recent call last):",
        "No CUDA GPUs are available", "\0", "\x1b[2J", "\u202e", "no tool prints this", "x" * 3000,
    ]
)  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> str:
    """One line, of a tool's or of #error, #pragma message, #line and static_assert that imitate one."""
    said = draw(
        st.one_of(_SAID, st.builds("{}: No such file or directory".format, _HEADERS), st.text(max_size=40))
    )
    number = draw(st.sampled_from(["1", "0", "999999999", "99999999999"]))
    head = draw(
        st.sampled_from(
            [
                "{file}:{number}:5: fatal error: ", "{file}:{number}:5: error: ", "{file}({number}): error: ",
                "{file}:{number}:1: internal compiler error: ", "{file}:{number}:1: note: '#pragma message: ",
                "{file}:{number}: Error: ", "In file included from {file}:{number},", "ptxas fatal   : ",
                "g++: error: ", "/usr/bin/ld: ", "ninja: error: ", "[1/3] g++ {file}",
                "FAILED: [code={number}] x\n", "",
            ]
        )
    )  # fmt: skip
    return head.format(file=draw(_FILES), number=number) + said


@st.composite
def outputs(draw: st.DrawFn) -> str:
    """What ninja passed on."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            code = draw(
                st.sampled_from(["", "[code=1] ", "[code=126] ", "[code=127] ", "[code=137] ", "[code=4] "])
            )
            parts.append(f"[0/3] g++ x\nFAILED: {code}{draw(st.sampled_from(OBJECTS))} \ncommand\n")
        parts += draw(st.lists(lines(), max_size=3))
    return "\n".join(parts)


_STATUSES: st.SearchStrategy[Status] = st.sampled_from(
    ["ok", "nonzero", "nonzero", "nonzero", "signal", "oom", "wall_timeout", "cpu_timeout", "output_limit",
     "disk_limit", "gpu_fault"]
)  # fmt: skip


@st.composite
def ends(draw: st.DrawFn) -> ExitFacts:
    """Any end but the sandbox's own failure, and no starving: those a project cannot bring about."""
    facts = exit_facts(
        draw(_STATUSES), draw(outputs()), draw(st.sampled_from([None, 0, 1, 2, 4, 126, 127, 137, 139]))
    )
    number = draw(st.sampled_from([None, *signal.Signals]))
    return replace(facts, signal=number, starved_s=draw(st.sampled_from([None, 0.0, facts.wall_s / 2])))


def is_the_students(finding: Finding | None) -> None:
    """A finding of the project's, which a record can hold."""
    assert finding is not None
    assert finding.verdict in STUDENTS, finding
    assert finding.cause.verdict is not Verdict.INFRA
    assert Finding.model_validate_json(finding.model_dump_json()) == finding


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """With headers in it that a message may name."""
    found = fake_toolchain(tmp_path / "toolchain")
    assert found.torch_root is not None and found.python_include is not None
    for header in (found.torch_root / "include/torch/all.h", found.python_include / "Python.h"):
        header.parent.mkdir(parents=True)
        header.touch()
    return found


@pytest.mark.parametrize(
    ("target", "count"),
    [pytest.param("cpu", 80, marks=pytest.mark.slow), pytest.param("cuda", 1500, marks=pytest.mark.slow)],
)
def test_no_output_makes_a_failed_build_ours(target: Target, count: int, toolchain: Toolchain) -> None:
    """Any output, any end: the student's, on a machine that has all that a project may ask for."""
    assert toolchain.cuda is not None and toolchain.cuda.include is not None
    for header in ("cublas_v2.h", "curand_kernel.h", "c10/cuda/impl/cuda_cmake_macros.h"):
        (toolchain.cuda.include / header).parent.mkdir(parents=True, exist_ok=True)
        (toolchain.cuda.include / header).touch()
    whole = toolchain.model_copy(update={"stubs": ()})
    layout = planned(project(), target, whole)

    @settings(FUZZ, max_examples=count)
    @given(
        facts=ends(),
        log=st.sampled_from(["", "0\t1\t1\tobj/kernels/fill.cpp/unit.o\tf\n", "rubbish\t\t\t\t\n"]),
    )
    def one(facts: ExitFacts, log: str) -> None:
        run = NinjaRun(facts, log, layout, whole, lambda: None)
        finding = run.finding()
        if facts.status == "ok":
            assert finding is None
            return
        is_the_students(finding)
        found = run.diagnostics(finding)
        assert 1 <= len(found) <= DIAGNOSTICS_LIMIT + 1, "and the limit"
        for one in found:
            assert Diagnostic.model_validate_json(one.model_dump_json()) == one
            assert len(one.message) <= 400 and len(one.source or "") <= 200 and "\n" not in one.message

    one()


@pytest.mark.slow
def test_no_import_makes_an_inline_build_ours(toolchain: Toolchain) -> None:
    """A package that is imported where compilers are runs code of its own there, and may end in any way."""
    layout = planned(project(), "cpu", toolchain).model_copy(update={"units": Units(units=())})

    @settings(FUZZ, max_examples=150)
    @given(first=ends(), second=ends())
    def one(first: ExitFacts, second: ExitFacts) -> None:
        found = inline_libraries(layout, toolchain, sandbox=FakeSandbox([first, second]), limits=LIMITS)
        if found.finding is not None:
            is_the_students(found.finding)

    one()


REAL = {
    "an absolute header": '#include "/etc/shadow"\n',
    "an imitated end": '#line 1 "x"\n#error FAILED: [code=127] obj/kernels/fill.cpp/unit.o\n',
    "a compiler that gives up": "int x = " + "(" * 60_000 + "1" + ")" * 60_000 + ";\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", REAL.values(), ids=REAL.keys())
@pytest.mark.parametrize("name", ["local", "bubblewrap"])
def test_real_compilers_on_hostile_sources(name: str, text: str, real: Toolchain, tmp_path: Path) -> None:
    """What they really print and how they really end, in sandboxes that report it differently."""
    if real.missing("cpu") is not None:
        pytest.skip(f"cannot build for the CPU: {real.missing('cpu')}")
    try:
        sandbox = open_sandbox(name)
    except SandboxError as error:
        pytest.skip(f"no {name} here: {error}")
    given_project = project({"kernels/fill.cpp": text + FILES["kernels/fill.cpp"]})
    built = build(given_project, "cpu", sandbox=sandbox, toolchain=real, cache=tmp_path)
    is_the_students(built.result.finding)
    sandbox.close()
