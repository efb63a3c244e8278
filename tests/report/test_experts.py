"""Figures of the experts are gathered from what was measured, and shown with their machine and day."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.outcome import Cause
from harness.records import TrialKey
from harness.records.task import Admission, Rule
from harness.report.experts import result_of, write_results
from tests.fakes.overlays import throw_away_task
from tests.report import factories as make
from tools.gpu_results import Contents, Entry
from tools.status import NOT_YET, ROOT, pages, read_results, status_page

TASK = throw_away_task("scale").task.model_copy(update={"level": "l1", "family": "rms_norm"})
KEY = TrialKey(task="l1/scale", model="m/m", arm="a", repeat=0)


def gpu_entry(name: str, status: str = "passed", **facts: object) -> Entry:
    fields = {"name": name, "proves": "it", "status": status, "facts": facts, "error": None, "wall_s": 1.0}
    return Entry.model_validate(fields | {"measured_at": "2026-11-22 10:00:00"})


def write_ledger(folder: Path) -> None:
    """What gpu-check leaves."""
    entries = (
        gpu_entry("ceilings/copy", copy_gb_s=4320.0),
        gpu_entry("expert/l1/scale"),
        gpu_entry(
            "time/l1/scale", protocol="quick", speedup=2.0, low=1.9, high=2.1, student_us=5.0,
            reference_us=10.0, fastest_reference="eager", of_speed_of_light=0.81, flags="-",
            workload="square float16",
        ),
        gpu_entry("full/l1/scale", status="not_here"),
    )  # fmt: skip
    contents = Contents(liftbench="1", gpu="NVIDIA H200", gpu_uuid="GPU-1", entries=entries)
    (folder / "nvidia-h200-2026-11-22.json").write_text(contents.model_dump_json())


def test_a_grade_becomes_a_result_with_its_machine() -> None:
    """Speedup, its opponent and flags; on the CPU the device is the CPU."""
    grade = make.grade(KEY, timing=make.timed(1.5, flags=("noisy host",)), target="cpu")
    found = result_of(grade, make.machine())
    assert (found.device, found.correct, found.speedup) == ("AMD EPYC 9654", True, 1.5)
    assert found.reference == "library"
    assert (found.student_us, found.reference_us, found.flags) == (10.0, 15.0, "noisy host")
    wrong = result_of(make.grade(KEY, cause=Cause.WRONG_VALUES), make.machine())
    assert (wrong.device, wrong.correct, wrong.speedup) == ("NVIDIA H200", False, None)


def test_results_replace_older_ones_of_the_same_task_and_device(tmp_path: Path) -> None:
    """And keep all others; a file that holds something else, or nothing readable, is refused."""
    path = tmp_path / "cpu.json"
    grade = make.grade(KEY, timing=make.timed(1.5, flags=("noisy host",)), target="cpu")
    first = result_of(grade, make.machine())
    other = first.model_copy(update={"task": "l1/other"})
    write_results(path, [first, other])
    write_results(path, [first.model_copy(update={"speedup": 3.0})])
    assert {one.task: one.speedup for one in read_results(tmp_path)} == {"l1/scale": 3.0, "l1/other": 1.5}
    write_ledger(tmp_path)
    with pytest.raises(UsageError, match="holds no results of experts"):
        write_results(tmp_path / "nvidia-h200-2026-11-22.json", [])
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(UsageError, match="no file of results"):
        read_results(tmp_path)


def test_the_page_shows_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    """Results of gpu-check, with the share of that session's copy bandwidth; goals count measured experts."""
    write_ledger(tmp_path)
    check, time = read_results(tmp_path)
    assert (check.correct, check.speedup) == (True, None)
    assert (time.speedup, time.low, time.reference, time.device) == (2.0, 1.9, "eager", "NVIDIA H200")
    assert time.of_copy == pytest.approx(0.81 * 4800 / 4320)
    rule = Rule(name="expert", status="holds")
    fields = {"task": "l1/scale", "version": 1, "task_digest": "a", "expert": None, "target": "cpu"}
    admission = Admission.model_validate(fields | {"rules": (rule,)})
    other = TASK.model_copy(update={"name": "other"})
    text = status_page([TASK, other], [admission], read_results(tmp_path))
    assert "| l1/scale | rms_norm | yes | not measured yet | yes | 2.00x (1.90, 2.10), quick" in text
    assert "| 90% | NVIDIA H200, 2026-11-22 |" in text
    assert f"| l1/other | rms_norm | {NOT_YET} |" in text
    assert "3 of 4 tasks of l1 and l2: 1 of 1 measured" in text
    assert f"within 1.5x of the library: {NOT_YET}" in text


def test_the_shipped_pages_are_what_was_measured() -> None:
    """Make it so: make status."""
    for name, text in pages().items():
        assert (ROOT / "docs" / "generated" / name).read_text() == text
