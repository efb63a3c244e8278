"""An eval on a fleet whose driver, or whose head, is killed: the same command completes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.processes import processes_naming
from tests.fakes.tiny import project_reply, record, write_skill, write_tasks
from tests.fleet.cluster import HOST, nothing_left, three_nodes, until

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.filterwarnings("ignore")]
RUNS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """This process stays outside."""
    with nothing_left(tmp_path, next_start=True), three_nodes() as made:
        yield made


class Command:
    """An eval of 6 trials over a recording."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        tasks, skill = write_tasks(folder, ("one",)), write_skill(folder)
        recording = record(folder, tasks, skill, RUNS, project_reply("one"))
        self._words = [sys.executable, "-m", "harness.cli.main", "eval", str(skill), "--target", "cpu"]
        self._words += ["-m", f"replay/{recording}", "--tasks-root", str(tasks), "--runs", str(RUNS)]
        self._words += ["--runs-dir", str(self.runs), "--cache", str(folder / "cache")]
        self._log = folder / "stderr"

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """A process of the command."""
        with self._log.open("ab") as log:
            return subprocess.Popen([*self._words, *more], stdout=log, stderr=log)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def stored(self) -> list[dict[str, Any]]:
        """All lines of trials.jsonl."""
        files = list(self.runs.glob("*/trials.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def check_complete(self) -> None:
        """One run; every trial once, none of them infra, none scored against the student."""
        keys = Counter(json.dumps(trial["key"], sort_keys=True) for trial in self.stored())
        assert len(keys) == 2 * RUNS
        assert set(keys.values()) == {1}, self.said
        assert {trial["turns"][-1]["grade"]["verdict"] for trial in self.stored()} == {"correct"}
        assert len(list(self.runs.iterdir())) == 1


def test_a_killed_driver_leaves_nothing_and_the_same_command_completes_it(
    cluster: Any, tmp_path: Path
) -> None:
    """Actors, grader processes and sandboxes end with their driver; finished trials are kept."""
    command = Command(tmp_path)
    driver = command.start("--fleet", cluster.address)
    until(command.stored, 120)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    until(lambda: not processes_naming(HOST))
    before = len(command.stored())
    assert 0 < before < 2 * RUNS
    assert command.start("--fleet", cluster.address).wait(timeout=240) == 0, command.said
    assert f"{before} finished before" in command.said
    command.check_complete()


@pytest.mark.exhaustive
def test_a_lost_head_loses_no_trial(cluster: Any, tmp_path: Path) -> None:
    """The head's processes are killed: the run completes, or the same command does without a fleet."""
    command = Command(tmp_path)
    driver = command.start("--fleet", cluster.address)
    until(command.stored, 120)
    cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
    code = driver.wait(timeout=240)
    until(lambda: not processes_naming(HOST))
    kept = len(command.stored())
    assert kept > 0
    if code != 0:
        assert command.start().wait(timeout=240) == 0, command.said
        assert f"{kept} finished before" in command.said
    command.check_complete()
