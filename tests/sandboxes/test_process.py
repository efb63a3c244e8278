"""The status of an ended job: GPU faults, our own kills, and failures of the backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.host_process import HostProcess
from sandboxes.job import ExitFacts, Job, Limits
from sandboxes.local import LocalBackend
from sandboxes.process import RunningProcess, WarmProcess
from tests.fakes.nvml import WHOLE, install_fake_nvml

Start = Callable[..., RunningProcess]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts Python code with a GPU."""
    install_fake_nvml(monkeypatch, tmp_path)
    started = []

    def run(code: str, wall_s: float = 20.0) -> RunningProcess:
        argv = [sys.executable, "-I", "-S", "-c", code]
        job = Job(role="run", argv=argv, limits=Limits(wall_s=wall_s), device=WHOLE)
        started.append(RunningProcess(WarmProcess(LocalBackend().spawn(job)), job))
        return started[-1]

    yield run
    for process in started:
        process.close()


# Runs until it is told to end.
TALK = "import os, time; print('up', flush=True)\nwhile not os.path.exists('end'): time.sleep(0.01)\n"


def ended_after(process: RunningProcess, events: Path, xids: str) -> ExitFacts:
    """How it ends when the GPU reports `xids` while it runs."""
    events.write_text(xids)
    (process._tree._spec.folder / "scratch/end").touch()  # type: ignore[attr-defined]
    facts = process.wait(30)
    assert facts is not None
    return facts


@pytest.mark.parametrize("code", [0, 3])
def test_an_illegal_access_is_a_gpu_fault(start: Start, tmp_path: Path, code: int) -> None:
    """Whatever its exit code, a job during which its GPU reported an application's error ends as that."""
    facts = ended_after(start(f"{TALK}raise SystemExit({code})"), tmp_path / "events", "31\n")
    assert (facts.status, facts.code) == ("gpu_fault", code)


def test_a_sick_gpu_is_never_the_jobs_fault(start: Start, tmp_path: Path) -> None:
    """An error of the device itself makes the end ours, and the message says what to do."""
    facts = ended_after(start(f"{TALK}raise SystemExit(1)"), tmp_path / "events", "79\n")
    assert facts.status == "sandbox_error"
    assert "fallen off the bus" in facts.output and "reset" in facts.output


def test_what_our_killing_causes_is_no_fault(start: Start, tmp_path: Path) -> None:
    """A context that is torn down by the deadline is reported too; the job still ran into its deadline."""
    process = start("import time; time.sleep(60)", wall_s=1.0)
    (tmp_path / "events").write_text("43\n")
    facts = process.wait(30)
    assert facts is not None and facts.status == "wall_timeout"


def test_without_a_report_nothing_changes(start: Start, tmp_path: Path) -> None:
    """A job on a GPU that reports nothing ends as its exit code says."""
    facts = ended_after(start(f"{TALK}raise SystemExit(3)"), tmp_path / "events", "")
    assert (facts.status, facts.code) == ("nonzero", 3)


class FailingTree(HostProcess):
    """Its kill() fails once the job has ended, as that of a control group may."""

    def kill(self) -> None:
        raise SandboxError("a control group does not die")


def test_a_backend_that_fails_at_the_end_is_told() -> None:
    """Whoever waits gets an answer, which is ours and no student's."""
    job = Job(role="run", argv=["/bin/true"], limits=Limits(wall_s=20))
    tree = LocalBackend().spawn(job)
    process = RunningProcess(WarmProcess(tree), job)
    tree.__class__ = FailingTree
    facts = process.wait(30)
    assert facts is not None and facts.status == "sandbox_error"
    assert "does not die" in facts.output
    process.close()
