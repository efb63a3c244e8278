"""Ends what a harness had started when the harness dies without a word (kill -9, out of memory).

It touches only the sessions, users, containers and folders that it was told of.

The kernel kills a job's first process when we die (prctl PDEATHSIG), but not what that one has started:
compilers would run on, a template bomb for ever.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_RM = "/bin/rm"
_SWEEPS = 40
_PAUSE_S = 0.05
_ENGINE_TRIES = 5
_ENGINE_S = 60.0  # a loaded engine took 12 s to remove ten containers


class Reaper:
    """Our end of the pipe; the process starts with the first job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._jobs: dict[int | str, str] = {}

    def watch(self, session: int, uid: int | None, folder: Path) -> None:
        """From now on `session`, all that `uid` runs, and `folder` end with us."""
        self._tell(session, json.dumps([session, uid, str(folder)]))

    def watch_container(
        self, name: str, engine: Path, folder: Path, thaw: tuple[Path, str] | None = None
    ) -> None:
        """From now on the container of that name and `folder` end with us.

        `engine`: its socket. `thaw`: file and word that thaw it where the engine does not know that it is
        frozen, since it cannot remove it then.
        """
        place = None if thaw is None else [str(thaw[0]), thaw[1]]
        self._tell(name, json.dumps([name, str(engine), str(folder), place]))

    def forget(self, job: int | str) -> None:
        """It has ended: a session, or a container by its name."""
        self._tell(job, None)

    def _tell(self, key: int | str, job: str | None) -> None:
        with self._lock:
            if job is None:
                self._jobs.pop(key, None)
            else:
                self._jobs[key] = job
            line = job or json.dumps([key])
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
    sessions: dict[int, tuple[int | None, str]] = {}
    containers: dict[str, tuple[str, str, list[str] | None]] = {}
    for line in sys.stdin:
        if not line.strip():
            continue
        key, *rest = json.loads(line)
        if isinstance(key, str):
            containers.pop(key, None)
            if rest:
                containers[key] = (rest[0], rest[1], rest[2])
            continue
        sessions.pop(key, None)
        if rest:
            sessions[key] = (rest[0], rest[1])
    for _ in range(_SWEEPS):
        users = {uid for uid, _ in sessions.values() if uid is not None}
        if not sum(_kill(pid) for pid in _belonging(set(sessions), users)):
            break
        time.sleep(_PAUSE_S)
    for name, (engine, _, thaw) in containers.items():
        _remove_container(name, engine, thaw)
    for folder in [*(f for _, f in sessions.values()), *(f for _, f, _ in containers.values())]:
        os.spawnve(os.P_WAIT, _RM, ["rm", "-rf", "--", folder], {})  # of any depth


def _remove_container(name: str, engine: str, thaw: list[str] | None) -> None:
    """Ask the engine to kill and remove it; what it cannot do now, the next harness asks for again."""
    request = f"DELETE /containers/{name}?force=1&v=1 HTTP/1.0\r\nHost: engine\r\n\r\n"
    for _ in range(_ENGINE_TRIES):
        try:
            if thaw is not None:
                Path(thaw[0]).write_text(thaw[1])
        except OSError:
            pass  # It is gone.
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_ENGINE_S)
                connection.connect(engine)
                connection.sendall(request.encode())
                answer = connection.recv(1 << 12).split(None, 2)
        except OSError:
            answer = []
        if answer[1:2] in ([b"204"], [b"404"]):
            return
        time.sleep(_PAUSE_S)


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
