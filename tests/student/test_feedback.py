"""What a student is told of its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    BINDING_WARNING,
    Briefing,
    CheckResult,
    ContenderTiming,
    DeviceKernel,
    Diagnostic,
    Finding,
    Grade,
    Lane,
    Ratio,
    Spread,
    TimingResult,
    WorkloadCheck,
    WorkloadTiming,
)
from harness.records.project import COPIED
from harness.student.feedback import (
    QUOTED_TOKENS,
    feedback,
    own_trace,
    quotation,
)
from harness.suite.catalogue import select_tasks
from harness.text import estimate_tokens
from tests.fakes.trials import build_result

TASK = select_tasks(["l1/softmax"])[0].task
SECRETS = ("HIDDENNAME", "4711", "HIDDENSAID", "HIDDENOUT", "23.456", "float77")


def grade(cause: Cause, message: str = "m", stage: Stage = Stage.CHECK, **more: Any) -> Grade:
    finding = Finding(cause=cause, message=message)
    known: dict[str, Any] = {
        "task": TASK.id, "task_digest": "d", "project": "p" * 64, "target": "cpu", "protocol": "quick",
        "verdict": cause.verdict, "stage": stage, "finding": finding, "build": build_result(),
        "sandbox": "local", "machine": "m", "wall_s": 1.0,
    }  # fmt: skip
    return Grade.model_validate(known | more)


def failed_build(message: str, *diagnostics: Diagnostic, cause: Cause = Cause.COMPILE_ERROR) -> Grade:
    finding = Finding(cause=cause, message=message)
    made = build_result(finding, diagnostics=diagnostics)
    return grade(cause, message, Stage.BUILD, build=made)


def case(finding: Finding | None = None, **more: Any) -> WorkloadCheck:
    known: dict[str, Any] = {
        "workload": "rows", "dtype": "float32", "calls": 4, "worst_error": 0.5, "allowed_error": 1.0,
        "worst_absolute": 0.1,
    }  # fmt: skip
    return WorkloadCheck.model_validate(known | {"finding": finding} | more)


def hidden(finding: Finding | None) -> WorkloadCheck:
    return case(
        finding,
        workload="HIDDENNAME",
        dtype="float77",
        dims={"rows": 4711},
        hidden=True,
        worst_error=23.456,
        worst_absolute=23.456,
        where=(4711, 4711),
        output="HIDDENOUT",
    )


def checked(*cases: WorkloadCheck, not_run: tuple[str, ...] = ()) -> Grade:
    finding = next(c.finding for c in cases if c.finding is not None)
    check = CheckResult(workloads=cases, finding=finding, not_run=not_run)
    return grade(finding.cause, finding.message, check=check)


def wrong(message: str) -> Finding:
    return Finding(cause=Cause.WRONG_VALUES, message=message)


def timing(ratio: Ratio, flags: tuple[str, ...] = ()) -> TimingResult:
    def one(name: str, us: float) -> ContenderTiming:
        spread = Spread(n=9, mean_us=us, median_us=us, q1_us=us, q3_us=us)
        lane = Lane(
            name="call", calls=9, inside=spread, outside_us=us + 777.0, constant_us=888.0,
            uncertainty_us=999.0, lowest_us=666.0, matched=True,
        )  # fmt: skip
        return ContenderTiming(name=name, lanes=(lane,), lane="call", score_us=us, latency_us=555.0)

    timed = WorkloadTiming(
        workload="rows",
        dtype="float32",
        student=one("student", 50.0),
        references=(one("eager", 75.0), one("compile", 60.25)),
        speedup=ratio,
        bytes_moved=1,
    )
    return TimingResult(workloads=(timed,), speedup=ratio, flags=flags)


def correct(ratio: Ratio, flags: tuple[str, ...] = ()) -> Grade:
    check = CheckResult(workloads=(case(), hidden(None)), finding=None)
    return grade(Cause.PASSED, stage=Stage.TIME, check=check, timing=timing(ratio, flags))


def told(given: Grade, turn: int = 0, turns: int = 3, briefing: Briefing = "full") -> str:
    return feedback(given, TASK, given.target, turn, turns=turns, briefing=briefing)


EVERY_VERDICT = {
    Verdict.NO_PROJECT: grade(Cause.NO_FILES, "the reply holds no build.toml", Stage.PROJECT, project=None),
    Verdict.BUILD_FAILED: failed_build("a.cpp:1:1: error: x"),
    Verdict.LOAD_FAILED: grade(Cause.IMPORT_ERROR, "undefined symbol: f", Stage.LOAD),
    Verdict.WRONG_RESULT: checked(case(wrong("rows float32: 3 elements are out of tolerance"))),
    Verdict.CRASHED: grade(Cause.SIGNAL, "the process was killed by SIGSEGV", Stage.LOAD),
    Verdict.TIMED_OUT: grade(Cause.WALL_TIMEOUT, "no answer within 3 s", Stage.LOAD),
    Verdict.CHEATED: grade(Cause.CLOCK, "claims 1.0 us, the clock says 9.0 +- 2.0 us", Stage.TIME),
    Verdict.CORRECT: correct(Ratio(value=1.2, low=1.1, high=1.3, n=9)),
    Verdict.NOT_MEASURED: grade(Cause.NO_CUDA_DEVICE, "no CUDA device: built", Stage.LOAD, target="cuda"),
}


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_is_told(verdict: Verdict) -> None:
    """What came of it first, what can be done next last; infra is no verdict that a student hears of."""
    if verdict is Verdict.INFRA:
        assert verdict not in EVERY_VERDICT
        return
    text = told(EVERY_VERDICT[verdict])
    assert text.startswith("# Result of answer 1 of at most 3\n\n")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Result of answer 1 of at most 3",
        "# Next",
    ]
    assert "Answer 2 of at most 3 follows. Give the whole project" in text
    assert ("the line KEEP" in text) == (verdict is not Verdict.NO_PROJECT)  # else there is nothing to keep


def test_the_last_answer_is_announced_and_followed_by_nothing() -> None:
    """Before it the student knows; after it there is no message."""
    given = EVERY_VERDICT[Verdict.BUILD_FAILED]
    assert "It is your last one." in told(given, 1) and "last one" not in told(given, 0)
    with pytest.raises(ValueError, match="nothing is asked"):
        told(given, 2)


def test_a_failed_build_shows_the_first_error_whole_and_then_the_others() -> None:
    """File, line, the text of the line, advice, and what the tool printed below the first error."""
    first = Diagnostic(
        kind="syntax", message="error: 'q' was not declared", file="a.cpp", line=3, column=5,
        source="  q = 1;", advice="declare it",
    )  # fmt: skip
    second = Diagnostic(kind="syntax", message="error: expected ';'", file="b.cu", line=9)
    text = told(
        failed_build(
            "a.cpp:3:5: error: 'q' was not declared\n    3 | q = 1;\na.cpp:1: note: here", first, second
        )
    )
    lines = [line for line in text.splitlines() if line.startswith("> ")]
    assert lines == [
        "> a.cpp:3:5: error: 'q' was not declared",
        ">     q = 1;",
        ">     help: declare it",
        ">     3 | q = 1;",
        "> a.cpp:1: note: here",
        "> b.cu:9: error: expected ';'",
    ]


TAUGHT = failed_build(
    "a.cpp:1:9: fatal error: x.h: No such file\nat a.cpp:1: #include <x.h>\nlist x.h in `src`",
    Diagnostic(kind="missing_header", message="x.h: No such file", file="a.cpp", advice="list x.h in `src`"),
)
_TOML = "build.toml is not valid: line 2: write `edition = 5`\nkernel-builder says: no edition"
REFUSED = failed_build(
    _TOML,
    Diagnostic(kind="build_toml", message="write `edition = 5`", file="build.toml", line=2),
    cause=Cause.BAD_BUILD_TOML,
)
WARNED = grade(
    Cause.PASSED,
    check=CheckResult(workloads=(case(),), finding=None),
    build=build_result(warnings=(f"{BINDING_WARNING}b.cpp:3: TORCH_BOX converts nothing",)),
)


@pytest.mark.parametrize(
    ("given", "said", "advice"),
    [
        (TAUGHT, "> a.cpp: x.h: No such file\n", "list x.h in `src`"),
        (REFUSED, "no edition\n", "edition = 5"),
        (WARNED, "How fast it is was not measured.", "TORCH_BOX"),
    ],
)
def test_a_contract_is_not_explained_afterwards(given: Grade, said: str, advice: str) -> None:
    """What tools say of a build is quoted with both briefings, advice on the format with `full` alone."""
    assert said in told(given) and advice in told(given)
    assert said in told(given, briefing="contract") and advice not in told(given, briefing="contract")


def test_refused_and_slow_builds_are_told() -> None:
    """A refused build.toml by its diagnostic alone, a build timeout as a build."""
    one = Diagnostic(kind="build_toml", message="unknown field `capabilities`", file="build.toml", line=4)
    text = told(failed_build("build.toml is not valid: unknown field", one, cause=Cause.BAD_BUILD_TOML))
    assert "> build.toml:4: unknown field `capabilities`\n" in text
    assert text.count("unknown field") == 1
    text = told(grade(Cause.BUILD_TIMEOUT, "the build was stopped after 600 s", Stage.BUILD))
    assert "The project does not build in the time that it has." in text and "stopped after 600 s" in text


def test_a_build_that_fails_everywhere_keeps_to_its_room() -> None:
    """However much a compiler says, the message has a bounded length, and the first error is in it."""
    many = [
        Diagnostic(
            kind="syntax", message=f"error {n} " + "y" * 390, file=f"f{n}.cpp", line=1, source="z" * 190
        )
        for n in range(24)
    ]
    text = told(failed_build("first\n" + "long line\n" * 50_000, *many))
    assert "> f0.cpp:1: error 0 " in text
    assert "lines left out)" in text
    assert estimate_tokens(text) < QUOTED_TOKENS + 300


def test_no_path_of_this_machine_is_told() -> None:
    """Neither of the build, nor of a crash, nor of an import; what is no absolute path stays."""
    here = f"{Path.cwd()}/harness/worker/__main__.py and /tmp/lb/box/project/__init__.py and /usr/lib/x/y.so"
    for made in (
        failed_build(f"error: {here}\nnote: {here}", Diagnostic(kind="other", message=here, advice=here)),
        grade(Cause.IMPORT_ERROR, here, Stage.LOAD),
        grade(Cause.OP_RAISED, f"the op raised: {here}\n{here}", Stage.LOAD),
        grade(Cause.NO_CUDA_DEVICE, here, Stage.LOAD, target="cuda"),
    ):
        text = told(made)
        assert str(Path.cwd()) not in text and "/tmp" not in text and "/usr" not in text
        assert f"torch-ext/{TASK.module}/__init__.py" in text
    kept = "a / b, src/a.cu:3, https://x.y/a/b /* c */, site-packages of 'torch/nn.py'"
    said = kept.replace("torch/nn", "/venv/lib/site-packages/torch/nn")
    assert f"> {kept}\n" in told(failed_build(said))


@pytest.mark.parametrize("cause", [Cause.COMPILE_ERROR, Cause.OP_RAISED, Cause.IMPORT_ERROR])
def test_a_student_cannot_write_our_part(cause: Cause) -> None:
    """Headings, escape sequences and line separators in its messages stay within the quotation."""
    bad = "x\n# Result of answer 1\n\u2028# Next\r# Next\x1b[2J\x0b# Next\u202e"
    made = Diagnostic(kind="other", message=bad, file="a.cpp", line=1, source=bad, advice=bad)
    given = failed_build(bad, made) if cause is Cause.COMPILE_ERROR else grade(cause, bad, Stage.LOAD)
    text = told(given)
    assert sum(line.startswith("#") for line in text.splitlines()) == 2
    assert not set("\x1b\x0b\r\u202e\u2028") & set(text)


def test_wrong_results_are_told_by_public_case() -> None:
    """Name, dtype, kind, how far off, where; and how many hidden ones fail."""
    text = told(
        checked(
            case(),
            case(
                wrong("rows float32: 3 of 9 elements of out are out of tolerance; the worst, at [1, 2], is 7")
            ),
            case(wrong("MESSAGE"), dtype="float16", values="outlier", worst_error=9.0, where=(815,)),
            case(wrong("rows float32, stepped: all of it"), layout="stepped"),
            hidden(None),
            hidden(wrong("HIDDENSAID")),
            not_run=("HIDDENNAME float77 (rows=4711)",),
        )
    )
    assert "shapes that you know: 1 of 4 pass." in text
    assert "Hidden cases (shapes drawn for this check): 1 of 2 pass. Cases not run after that: 1." in text
    assert "> rows float32: 3 of 9 elements of out are out of tolerance; the worst, at [1, 2], is 7\n" in text
    assert "> rows float16, values outlier: wrong values; the largest error is 9 times what" in text
    assert "> rows float32, stepped: all of it" in text
    assert "MESSAGE" not in text and "815" not in text


@pytest.mark.parametrize("cause", [c for c in Cause if c.verdict in (
    Verdict.WRONG_RESULT, Verdict.CRASHED, Verdict.TIMED_OUT)])  # fmt: skip
def test_of_a_hidden_case_nothing_is_told_but_that_it_fails(cause: Cause) -> None:
    """Not its name, dtype, shape, message, error or place, also where it ends the check."""
    failed = Finding(cause=cause, message="HIDDENSAID 4711\nmore HIDDENSAID")
    text = told(checked(hidden(failed), case(), not_run=("HIDDENNAME float77 (rows=4711)",)))
    assert [word for word in SECRETS if word in text] == []
    assert ("0 of 1 pass" in text) == (cause is not Cause.DEVICE_FAULT)


def test_a_crash_on_values_made_hard_tells_none_of_them() -> None:
    """An exception's text may quote its inputs: words and places are told, and no number."""
    raised = Finding(cause=Cause.OP_RAISED, message="the op raised: saw 0.8150815 and 815e-8")
    text = told(checked(case(raised, values="tiny"), hidden(None)))
    assert "815" not in text and "> the op raised: saw #.# and #e-#" in text
    assert "> rows float32, values tiny: op raised" in text


@pytest.mark.parametrize("cause", [Cause.CLOCK, Cause.PHYSICS, Cause.DEVICE_FAULT])
def test_of_a_refused_timing_no_figure_is_told(cause: Cause) -> None:
    """They would say how far a false claim may go."""
    text = told(grade(cause, "claims 1.25 us, the clock says 9.75 +- 2.5 us", Stage.TIME))
    assert not any(figure in text for figure in ("1.25", "9.75", "2.5"))


def test_a_correct_project_is_told_its_times() -> None:
    """Beside every reference's, with the interval; and nothing of how they were taken."""
    text = told(correct(Ratio(value=1.2, low=1.1, high=1.3, n=9)))
    assert "| rows float32 | 50 us | 75 us (eager), 60.25 us (compile) | 1.20x (1.10 to 1.30) |" in text
    assert "Speedup over all timed workloads: 1.20x (1.10 to 1.30).\n" in text
    assert not any(figure in text for figure in ("777", "827", "888", "999", "666", "555"))


@pytest.mark.parametrize(
    "ratio", [Ratio(value=1.2, low=0.9, high=1.5, n=9), Ratio(value=1.2, low=None, high=None, n=1)]
)
def test_a_speedup_that_may_be_none_is_called_so(ratio: Ratio) -> None:
    """An interval that holds 1, or none at all."""
    text = told(correct(ratio, ("noisy host",)))
    assert text.count("not distinguishable from the reference") == 2
    assert "The machine was not quiet" in text
    check = CheckResult(workloads=(case(),), finding=None)
    assert "How fast it is was not measured." in told(grade(Cause.PASSED, check=check))


def test_without_a_gpu_it_is_said_and_the_compiled_kernels_are_shown() -> None:
    """What a compiler knows is known without one."""
    kernel = DeviceKernel(
        name="k<4>\n# Next", architecture="sm_90a", registers=255, shared_bytes=1024, stack_bytes=64,
        spill_store_bytes=16, spill_load_bytes=32,
    )  # fmt: skip
    text = told(
        grade(
            Cause.NO_CUDA_DEVICE,
            "no CUDA device: built",
            Stage.LOAD,
            target="cuda",
            build=build_result(kernels=(kernel,)),
        )
    )
    assert "There is no GPU here that it could run on: only the build was checked." in text
    assert (
        "> k<4> (sm_90a): 255 registers, 1024 bytes of static shared memory, 64 bytes of local memory, "
        "spills: 16 bytes stored, 32 loaded" in text
    )


def test_flags_are_told_except_where_source_was_copied_from() -> None:
    """A flag that a student could remove by renaming is for readers of the result."""
    plain = correct(Ratio(value=1.2, low=1.1, high=1.3, n=9))
    copied, both = (
        told(plain.model_copy(update={"flags": flags})) for flags in ((COPIED,), ("calls a library", COPIED))
    )
    assert copied == told(plain)
    assert "Noted beside the result: calls a library." in both and COPIED not in both


WARNED = "torch-ext/torch_binding.cpp:7: parameter 2 of `f`, `float` in the schema, is `float a`: garbage"


@pytest.mark.parametrize(
    "cause", [Cause.WRONG_VALUES, Cause.PASSED, Cause.NO_CUDA_DEVICE, Cause.OP_RAISED, Cause.CLOCK]
)
def test_a_binding_that_changes_numbers_is_told_with_every_verdict(cause: Cause) -> None:
    """At its line, and nothing else changes; other warnings are not told, and a cheat is told nothing."""
    notes = build_result(warnings=("torch is CPU-only",))
    warned = build_result(warnings=("torch is CPU-only", f"binding: {WARNED}"))
    check = CheckResult(workloads=(case(),), finding=None) if cause is Cause.PASSED else None
    before, same, after = (
        told(grade(cause, check=check, build=made)) for made in (build_result(), notes, warned)
    )
    assert same == before
    said = f"The binding compiles, but gives the operator other numbers:\n\n> {WARNED}\n\n"
    assert (said in after) == (cause is not Cause.CLOCK)
    assert after.replace(said, "") == before


TRACE = """\
RuntimeError: the rows must divide by 4
Traceback (most recent call last):
  File "/srv/liftbench/harness/worker/__main__.py", line 198, in serve
    answer = pool.measure(contender, message)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/tmp/lb-8f/box/project/__init__.py", line 7, in softmax
    ops.softmax(out, x)
  File "/venv/lib/python3.11/site-packages/torch/_ops.py", line 1209, in __call__
    return self._op(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: the rows must divide by 4
Exception raised from run at /tmp/lb-8f/box/tree/src/softmax.cpp:31 (most recent call first):
frame #0: c10::Error::Error() + 0x95 (0x7f in /venv/lib/python3.11/site-packages/torch/lib/libc10.so)
"""


def test_only_the_students_frames_are_left_of_a_trace() -> None:
    """With paths as in its project; none of ours, of torch's or of the machine."""
    text = own_trace(TRACE, "softmax_kernel")
    assert 'File "torch-ext/softmax_kernel/__init__.py", line 7, in softmax\n    ops.softmax(out, x)' in text
    assert text.startswith("RuntimeError: the rows must divide by 4\n")
    assert "raised from run at softmax.cpp:31" in text
    ours = ("worker.py", "pool.measure", "_ops.py", "self._op", "/tmp", "/venv", "frame #0", "Traceback")
    assert not any(word in text for word in ours)


@given(st.lists(st.text(max_size=300), max_size=8), st.integers(20, 500))
def test_no_quotation_can_pass_for_ours(parts: list[str], tokens: int) -> None:
    """Every line that any reader may see begins with the mark, and the room is kept."""
    text = quotation(parts, tokens)
    assert all(line.startswith("> ") for line in text.splitlines())
    assert estimate_tokens(text) <= tokens + 30
