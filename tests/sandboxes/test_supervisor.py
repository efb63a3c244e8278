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
from sandboxes.supervisor import RunningProcess, WarmProcess
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


@pytest.mark.parametrize(
    ("code", "xids", "status"),
    [(0, "31", "gpu_fault"), (3, "31", "gpu_fault"), (3, "", "nonzero"), (1, "79", "sandbox_error")],
)
def test_whose_fault_it_is(start: Start, tmp_path: Path, code: int, xids: str, status: str) -> None:
    """An application's error is the job's, whatever its exit code; one of the device itself is ours."""
    facts = ended_after(start(f"{TALK}raise SystemExit({code})"), tmp_path / "events", f"{xids}\n")
    assert (facts.status, facts.code) == (status, code)
    if status == "sandbox_error":
        assert "fallen off the bus" in facts.output and "reset" in facts.output


def test_what_our_killing_causes_is_no_fault(start: Start, tmp_path: Path) -> None:
    """A context that is torn down by the deadline is reported too; the job still ran into its deadline."""
    process = start("import time; time.sleep(60)", wall_s=1.0)
    (tmp_path / "events").write_text("43\n")
    facts = process.wait(30)
    assert facts is not None and facts.status == "wall_timeout"


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
