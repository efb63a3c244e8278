"""Loads `liftbench serve` on loopback and kills it twice: is every order answered, and rightly?

    python -m tools.soak_serve --submissions 1000 --clients 50      (`make soak`)

One submission in five is hostile, one is a mistake, the others are right; each is a project of its own and is
built, checked and not timed on the CPU target. Exits with 1 if an answer is lost, wrong or unscored, if
processes are left, or the service takes more than 800 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from examples.liftbench_client import Client
from harness.records import Project
from tests.fakes.overlays import TASKS, overlaid, zoo_project
from tests.fakes.processes import processes_naming

HOSTILE: Final = (
    "exits_zero_early",
    "fills_the_disk",
    "floods_output",
    "forks_without_end",
    "kills_everybody",
    "prints_fake_verdict",
)
MISTAKES: Final = ("wrong_result", "does_not_compile")
RESTARTS: Final = 2
MOST_MIB: Final = 800
"""Of the service's process, however many orders it had."""
_TOKEN: Final = "soak-of-the-service"


def submissions(count: int, seed: int) -> Iterator[tuple[str, Project]]:
    """Name and project; no two projects are equal."""
    draw = random.Random(seed)
    for number in range(count):
        turn = number % 5
        name = draw.choice(HOSTILE if turn == 3 else MISTAKES) if turn >= 3 else "correct"
        project = zoo_project(name)
        text = next(file.text for file in project.files if file.path == "build.toml")
        changed = {file.path: file.text for file in project.files} | {"build.toml": f"{text}# {number}\n"}
        yield name, overlaid(TASKS.parent / "zoo" / "base", changed)


class Service:
    """A `liftbench serve` that can be killed and started again at the same address."""

    def __init__(self, folder: Path, at_once: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = folder
        self._at_once = at_once
        self.most_mib = 0.0
        self.start()

    def start(self) -> None:
        """A new process."""
        folder = self._folder
        words = ["serve", "--tasks-root", str(TASKS), "--tasks", "t/scale", "--target", "cpu", "--no-time"]
        words += [
            "--store",
            str(folder / "orders"),
            "--cache",
            str(folder / "cache"),
            "--port",
            str(self.port),
        ]
        words += ["--at-once", str(self._at_once), "--max-waiting", "100"]
        with (folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.cli.main", *words],
                env=os.environ | {"LIFTBENCH_SERVE_TOKEN": _TOKEN},
                stderr=log,
            )

    def watch(self) -> None:
        """Note the memory of the process."""
        with suppress(OSError):  # it is being started again
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            self.most_mib = max(self.most_mib, int(resident.split()[1]) / 1024)

    def kill(self) -> None:
        """As the kernel would, short of memory."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def soak(count: int, clients: int, at_once: int, folder: Path) -> dict[str, object]:
    """Figures; `wrong` lists what should not be."""
    service = Service(folder, at_once)
    client = Client(f"http://127.0.0.1:{service.port}", _TOKEN)
    finished = threading.Semaphore(0)
    outcomes: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []

    def one(given: tuple[str, Project]) -> None:
        name, project = given
        files = {file.path: file.text for file in project.files}
        answer = client.grade(client.submit("t/scale", files))
        verdict = "unscored" if answer["unscored"] else answer["grade"]["verdict"]
        outcomes[name, verdict] += 1
        right = answer["rewards"]["correct"]
        if answer["unscored"] or (right == 1.0) != (name == "correct"):
            wrong.append(f"{name}: {verdict} {answer['unscored'] or ''}")
        finished.release()

    start = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(one, given) for given in submissions(count, seed=1)]
        done = killed = 0
        while done < count:
            if finished.acquire(timeout=1.0):
                done += 1
            elif all(future.done() for future in futures):
                break
            service.watch()
            if killed < RESTARTS and done >= (killed + 1) * count // (RESTARTS + 1):
                killed += 1
                service.kill()
                service.start()
        wrong += [f"no answer: {error}" for future in futures if (error := future.exception()) is not None]
    wall_s = time.monotonic() - start
    service.process.send_signal(signal.SIGINT)
    service.process.wait()
    time.sleep(3.0)
    left = sorted(processes_naming(str(folder)))
    wrong += [f"process {pid} is left" for pid in left]
    wrong += [f"{service.most_mib:.0f} MiB of memory"] if service.most_mib > MOST_MIB else []
    return {
        "submissions": count,
        "clients": clients,
        "killed": killed,
        "wall_s": round(wall_s, 1),
        "per_hour": round(count / wall_s * 3600),
        "most_memory_mib": round(service.most_mib),
        "outcomes": {f"{name}: {verdict}": n for (name, verdict), n in sorted(outcomes.items())},
        "wrong": wrong,
    }


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="liftbench-soak-") as folder:
        found = soak(given.submissions, given.clients, given.at_once, Path(folder))
        print(json.dumps(found, indent=1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
