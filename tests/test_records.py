"""The records: what is legal, and that they survive the disk."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import ValidationError

from harness import records
from harness.grading import load
from harness.grading.instrumentation import IMPORTS_NUMPY
from harness.judge import clock, interference, measurement, physical_limits, scoring
from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    COPIED,
    Arm,
    BinaryCalls,
    Evidence,
    Finding,
    Grade,
    InfraFailure,
    MachineFacts,
    Message,
    ModelSpec,
    Operand,
    Project,
    ProjectFile,
    Ratio,
    Record,
    Request,
    RunRecord,
    Sampling,
    Task,
    TrialKey,
    TrialRecord,
    Workload,
)
from harness.records.flags import FLAGS
from harness.records.grade import (
    KNOWN_SEED,
    LOADS_CODE,
    REPEATED,
    SANITIZER_TOOLS,
    SCALED,
    OperatorCalls,
    TracedKernel,
)
from harness.records.timing import NOISY
from tests.fakes.trials import ARMS, config, grade, run_record, trial

KEY = TrialKey(task="l1/rms_norm", model="fake/one", arm="without_skill", repeat=0)


def test_every_record_is_frozen_and_refuses_unknown_fields() -> None:
    """No record can be changed or carry something unforeseen."""
    classes = [c for _, c in inspect.getmembers(records, inspect.isclass) if issubclass(c, Record)]
    assert len(classes) > 30
    for one in classes:
        assert one.model_config["frozen"] is True
        assert one.model_config["extra"] == "forbid"


def test_a_two_skill_three_turn_trial_survives_the_disk() -> None:
    """Later kinds of trial need no other record."""
    arm = Arm(kind="with_skill", skills=("a" * 64, "b" * 64), delivery="disclosed")
    key = TrialKey(task="l1/rms_norm", model="fake/one", arm=arm.id, repeat=4)
    record = trial(key, turns=3)
    again = TrialRecord.model_validate_json(record.model_dump_json())
    assert again == record
    assert [t.index for t in again.turns] == [0, 1, 2]
    assert again.grade == record.turns[-1].grade
    run = run_record(config().model_copy(update={"arms": (*ARMS, arm), "turns": 3}))
    assert RunRecord.model_validate_json(run.model_dump_json()) == run


def test_arm_ids_tell_skills_order_and_delivery_apart() -> None:
    """Two arms share a folder only if they are the same."""
    fields: list[dict[str, Any]] = [
        {"kind": "without_skill"},
        *({"kind": kind, "skills": ("a", "b")} for kind in ("with_skill", "placebo", "old_skill")),
        {"kind": "with_skill", "skills": ("b", "a")},
        {"kind": "with_skill", "skills": ("a", "b"), "delivery": "disclosed"},
    ]
    assert len({Arm(**one).id for one in fields}) == len(fields)


def _grade_with(**changes: Any) -> Grade:
    return Grade.model_validate(grade().model_dump() | changes)


def _task_with_mask(**mask: Any) -> Task:
    operands = (
        Operand(name="y", role="partial", shape=("n",), mask="m"),
        Operand(name="m", shape=("n",), **mask),
    )
    return Task(
        name="t", level="l", family="f", version=1, title="t", op="t", package="t", semantics="", digest="d",
        operands=operands, workloads=(Workload(name="w", dims={"n": 1}, timed=True),),
        dtypes={"cpu": ("float32",)}, tolerance="elementwise",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Arm(kind="with_skill"), "skills do not fit"),
        (lambda: Arm(kind="without_skill", skills=("a",)), "skills do not fit"),
        (lambda: ModelSpec(name="gpt"), "provider/model"),
        (lambda: Operand(name="x", role="partial", shape=()), "mask"),
        (lambda: _task_with_mask(role="in", dtype="float32"), "must be an `in` operand, bool"),
        (lambda: _task_with_mask(role="inout", dtype="bool"), "must be an `in` operand, bool"),
        (lambda: Project(files=(ProjectFile(path="b", text=""), ProjectFile(path="a", text=""))), "sorted"),
        (lambda: _grade_with(verdict=Verdict.CORRECT), "does not mean"),
        (
            lambda: _grade_with(
                verdict=Verdict.CORRECT, stage=Stage.TIME, finding={"cause": "passed", "message": ""}
            ),
            "needs a passed check",
        ),
        (
            lambda: _grade_with(verdict=Verdict.INFRA, finding={"cause": "sandbox", "message": ""}),
            "not a grade",
        ),
        (lambda: InfraFailure(cause=Cause.COMPILE_ERROR, message="", at=""), "not an infra"),
        (lambda: TrialRecord.model_validate(trial(KEY).model_dump() | {"turns": ()}), "has a grade"),
        (
            lambda: TrialRecord.model_validate(trial(KEY).model_dump() | {"infra": True}),
            "records its failures",
        ),
        (lambda: run_record(config(), briefing="contract"), "different briefings"),
        (lambda: Ratio(value=float("nan"), low=None, high=None, n=1), "finite"),
    ],
)
def test_illegal_states_are_refused(make: Any, said: str) -> None:
    """A record that contradicts itself cannot be made."""
    with pytest.raises(ValidationError, match=said):
        make()


def test_the_gpus_of_one_machine_have_one_digest() -> None:
    """A grade may come from any GPU of a run: its UUID is not in the digest, its model is. Without a GPU the
    digest is what stored grades have."""
    facts = {
        "platform": "Linux x86_64",
        "python": "3.11.7",
        "cpu": "a CPU",
        "cpu_count": 2,
        "torch": "2.13.0",
    }
    one = MachineFacts(**facts, gpu="H100", gpu_uuid="GPU-1")
    two, other = (one.model_copy(update=changed) for changed in ({"gpu_uuid": "GPU-2"}, {"gpu": "H200"}))
    assert one.digest == two.digest != other.digest
    assert MachineFacts(**facts).digest == "34be77a7fd00"


def test_the_prompt_digest_covers_the_messages_alone() -> None:
    """Arm, repeat and sampling are not part of what the student reads."""
    one = Request(
        messages=(Message(role="user", content="x"),), sampling=Sampling(), task="t", arm="a", repeat=0
    )
    two = one.model_copy(update={"arm": "b", "repeat": 7, "sampling": Sampling(temperature=1.0)})
    three = one.model_copy(update={"messages": (Message(role="user", content="y"),)})
    assert one.prompt_digest == two.prompt_digest != three.prompt_digest


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ((1.5, 1.2, 1.9), True),
        ((0.5, 0.4, 0.6), True),
        ((1.5, 0.9, 2.5), False),
        ((1.01, 1.005, 1.015), False),
        ((1.5, None, None), False),
    ],
)
def test_distinguishable_needs_an_interval_without_one_and_two_percent(ratio: Any, expected: bool) -> None:
    """A speedup counts only where the interval excludes 1 and the effect is at least 2 %."""
    value, low, high = ratio
    assert Ratio(value=value, low=low, high=high, n=5).distinguishable is expected


def test_correctness_is_absent_where_it_was_not_measured() -> None:
    """not_measured is neither correct nor wrong."""
    finding = Finding(cause=Cause.NO_CUDA_DEVICE, message="no CUDA device")
    unmeasured = _grade_with(verdict=Verdict.NOT_MEASURED, stage=Stage.LOAD, finding=finding.model_dump())
    assert unmeasured.correct is None
    assert grade().correct is False


def test_every_verdict_cause_and_flag_has_a_meaning() -> None:
    """A sentence each, for reports; flags by the names that the judge and the grader use."""
    assert all(one.meaning.endswith(".") for one in (*Verdict, *Cause))
    names = {interference.FLAG, load.UNREAD, IMPORTS_NUMPY, measurement.UNFINISHED, scoring.UNRESOLVED}
    names |= {clock.MISMATCH, clock.UNUSED, clock.CHEAPER_IN_BATCHES}
    names |= {physical_limits.ABOVE, physical_limits.SUSPICIOUS, REPEATED, SCALED, NOISY, COPIED, LOADS_CODE}
    names.add(KNOWN_SEED)
    names |= {*BinaryCalls(compute=("x",), library=("x",), dispatcher=("x",), system=("dlopen",)).flags}
    kernels = (TracedKernel(name="x", launches=1, device_us=1.0, own=False),)
    computing = (OperatorCalls(name="x", calls=1, kind="compute"),)
    place = {"workload": "w", "dtype": "float32"}
    names |= {*Evidence(**place, operators=computing, kernels=kernels, traced_right=False).flags}
    names |= {
        *Evidence(**place, operators=None, trouble="t").flags,
        *(f"{t} findings" for t in SANITIZER_TOOLS),
    }
    assert set(FLAGS) == names


def test_a_build_out_of_time_was_once_build_failed() -> None:
    """Records of before are read as they are; no other cause may have another verdict than its own."""
    now = grade(Cause.BUILD_TIMEOUT)
    assert now.verdict is Verdict.TIMED_OUT
    earlier = now.model_dump(mode="json") | {"verdict": "build_failed"}
    assert Grade.model_validate(earlier).verdict is Verdict.BUILD_FAILED
    with pytest.raises(ValidationError, match="does not mean"):
        Grade.model_validate(earlier | {"verdict": "crashed"})
