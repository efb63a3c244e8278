"""An eval on a three-node cluster of this machine, with a fault every few seconds: is each trial graded once?

    python -m tools.soak_fleet --trials 500 --every-s 20      (`make soak`)

Trials are sm_90 builds, cached when the faults begin, and checked on the emulated GPU. Faults: an actor is
killed, a grader process is killed, a node is removed and another joins, an actor and its grader process hang.
Exits with 1 if a trial is lost, stored twice or scored against the student, or processes are left.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

# Ray reads them when it is imported.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

from ray.cluster_utils import Cluster

from tests.fakes.processes import processes_naming
from tests.fakes.tiny import project_reply, record, write_skill, write_tasks

HOST: Final = "harness.fleet.host"
HUNG_S: Final = 40.0
"""Longer than the driver waits for a sign of life."""


def hosts() -> list[tuple[int, int]]:
    """Grader processes, each with its actor's process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if HOST.encode() in entry.read_bytes():
                stat = (entry.parent / "stat").read_text().rpartition(")")[2].split()
                found.append((int(entry.parent.name), int(stat[1])))
    return sorted(found)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_actor(cluster: Any) -> None:
    """Of the first grader process."""
    _signal([actor for _, actor in hosts()[:1]], signal.SIGKILL)


def kill_host(cluster: Any) -> None:
    """The last grader process."""
    _signal([host for host, _ in hosts()[-1:]], signal.SIGKILL)


def replace_node(cluster: Any) -> None:
    """A node dies, another joins."""
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    cluster.add_node(num_cpus=1)


def hang(cluster: Any) -> None:
    """The first actor and its grader process stop for a while."""
    pids = [pid for pair in hosts()[:1] for pid in pair]
    _signal(pids, signal.SIGSTOP)
    time.sleep(HUNG_S)
    _signal(pids, signal.SIGCONT)


FAULTS: Final[tuple[Callable[[Any], None], ...]] = (kill_actor, replace_node, kill_host, hang)


def soak(trials: int, every_s: float, folder: Path) -> dict[str, object]:
    """Figures; `wrong` lists what should not be."""
    repeats = trials // 2
    tasks, skill = write_tasks(folder, ("one",)), write_skill(folder)
    reply = project_reply("one", base="base_cuda")
    recording = record(folder, tasks, skill, repeats, reply, target="cuda")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    words = [sys.executable, "-m", "harness.cli.main", "eval", str(skill), "--target", "cuda"]
    words += ["-m", f"replay/{recording}", "--tasks-root", str(tasks), "--runs", str(repeats)]
    words += [
        "--runs-dir",
        str(folder / "runs"),
        "--cache",
        str(folder / "cache"),
        "--fleet",
        cluster.address,
    ]
    start, faults = time.monotonic(), Counter[str]()
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(words, stdout=log, stderr=log)
        while driver.poll() is None and not _stored(folder):  # until then nothing is in the cache
            time.sleep(1.0)
        for fault in itertools.cycle(FAULTS):
            with suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=every_s)
                break
            fault(cluster)
            faults[fault.__name__] += 1
    wall_s = time.monotonic() - start
    cluster.shutdown()
    time.sleep(5.0)
    found = _checked(folder, trials, driver.returncode)
    return {"trials": trials, "wall_s": round(wall_s, 1), "faults": dict(faults)} | found


def _stored(folder: Path) -> list[dict[str, Any]]:
    files = (folder / "runs").glob("*/trials.jsonl")
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def _checked(folder: Path, trials: int, code: int) -> dict[str, object]:
    """What was stored, and what is wrong with it."""
    stored = _stored(folder)
    keys = Counter(json.dumps(trial["key"], sort_keys=True) for trial in stored)
    verdicts = Counter(
        "infra" if trial["infra"] else str(trial["turns"][-1]["grade"]["verdict"]) for trial in stored
    )
    left = processes_naming(HOST) + processes_naming(str(folder))
    wrong = [f"exit code {code}"] if code else []
    wrong += [f"{trials - len(keys)} trials are lost"] if len(keys) != trials else []
    wrong += [f"stored twice: {key}" for key, count in keys.items() if count > 1]
    wrong += [f"{count} trials are {name}" for name, count in verdicts.items() if name != "not_measured"]
    wrong += [f"left: {command[:80]}" for command in left]
    said = [line for line in (folder / "log").read_text().splitlines() if " is started again" in line]
    retried = sum(bool(trial["failures"]) for trial in stored)
    lost = {"retried_by_the_run": retried, "graders_lost": len(said)}
    return {"verdicts": dict(verdicts), **lost, "wrong": wrong}


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--every-s", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="liftbench-soak-") as folder:
        found = soak(given.trials, given.every_s, Path(folder))
        print(json.dumps(found, indent=1))
        if found["wrong"]:
            print((Path(folder) / "log").read_text()[-3000:], file=sys.stderr)
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
