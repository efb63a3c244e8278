"""Ends what a harness had started when the harness dies without a word (kill -9, out of memory).

Owns: one small process beside ours, which learns of every local job and notices our end by the end of
a pipe. Does not own: ending jobs while we live (local.py). Standard library only: the file is its own
program. Invariant: it touches only the sessions, users and folders that it was told of.

The kernel kills a job's first process when we die (prctl PDEATHSIG), but not what that one has started:
compilers would run on, a template bomb for ever.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_SWEEPS = 40
_PAUSE_S = 0.05


class Minder:
    """Our end of the pipe; the process starts with the first job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._jobs: dict[int, str] = {}

    def watch(self, session: int, uid: int | None, folder: Path) -> None:
        """From now on `session`, all that `uid` runs, and `folder` end with us."""
        self._tell(session, json.dumps([session, uid, str(folder)]))

    def forget(self, session: int) -> None:
        """It has ended."""
        self._tell(session, None)

    def _tell(self, session: int, job: str | None) -> None:
        with self._lock:
            if job is None:
                self._jobs.pop(session, None)
            else:
                self._jobs[session] = job
            line = job or json.dumps([session])
            try:
                self._write(line)
            except OSError:  # somebody killed it: another one learns of everything
                self._pipe = None
                self._write("\n".join(self._jobs.values()))

    def _write(self, lines: str) -> None:
        if self._pipe is None:
            self._pipe = _start()
        os.write(self._pipe, f"{lines}\n".encode())


def _start() -> int:
    """Start the process; the write end of its pipe, which nothing that we start inherits."""
    read_end, write_end = os.pipe()
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", __file__],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_end, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,  # Ctrl-C is for us, not for it
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return write_end


# --- the process itself ----------------------------------------------------------------------


def main() -> None:
    """Listen until the pipe ends, then end what is left."""
    jobs: dict[int, tuple[int | None, str]] = {}
    for line in sys.stdin:
        if not line.strip():
            continue
        session, *rest = json.loads(line)
        jobs.pop(session, None)
        if rest:
            jobs[session] = (rest[0], rest[1])
    for _ in range(_SWEEPS):
        users = {uid for uid, _ in jobs.values() if uid is not None}
        if not sum(_kill(pid) for pid in _belonging(set(jobs), users)):
            break
        time.sleep(_PAUSE_S)
    for _, folder in jobs.values():
        shutil.rmtree(folder, ignore_errors=True)


def _belonging(sessions: set[int], users: set[int]) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and (int(fields[3]) in sessions or entry.stat().st_uid in users):
                yield int(entry.name)
        except OSError:
            continue  # It ended.


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
