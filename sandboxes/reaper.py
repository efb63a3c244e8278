"""Kills what a harness has started when the harness dies without cleaning up (kill -9, out of memory).

The kernel kills a job's first process when the harness dies (PR_SET_PDEATHSIG), but not its descendants. So a
second process of the harness reads registrations from a pipe, and cleans up when the pipe closes.
Standard library only: it runs as a script.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_RM = "/bin/rm"
_SWEEPS = 5
_REAPER_SWEEPS = 40
_PAUSE_S = 0.05
_ENGINE_TRIES = 5
_ENGINE_S = 60.0  # a loaded engine took 12 s to remove ten containers


def processes() -> Iterator[tuple[int, int]]:
    """(process id, user id) of all processes that /proc shows."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                yield int(entry.name), entry.stat().st_uid
        except OSError:
            continue  # it ended


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command: state, parent, group, session, ...; empty when it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def kill_matching(matches: Callable[[int, int], bool], sweeps: int = _SWEEPS, pause_s: float = 0.0) -> None:
    """SIGKILL to every process whose (pid, uid) matches, repeated until no live one is found."""
    for _ in range(sweeps):
        if not sum(_kill(pid) for pid, uid in processes() if matches(pid, uid)):
            return
        time.sleep(pause_s)


def kill_session(session: int) -> None:
    kill_matching(lambda pid, uid: stat_of(pid)[3:4] == [str(session)])


def kill_user(user: int) -> None:
    kill_matching(lambda pid, uid: uid == user)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return stat_of(pid)[:1] not in (["Z"], ["X"], [])


class Reaper:
    """The harness's end of the pipe. The reaper process starts with the first registration."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._registered: dict[int | str, str] = {}

    def watch(self, session: int, uid: int | None, folder: Path) -> None:
        self._send(session, json.dumps([session, uid, str(folder)]))

    def watch_container(self, name: str, engine: Path, folder: Path) -> None:
        self._send(name, json.dumps([name, str(engine), str(folder)]))

    def forget(self, key: int | str) -> None:
        self._send(key, None)

    def _send(self, key: int | str, registration: str | None) -> None:
        with self._lock:
            if registration is None:
                self._registered.pop(key, None)
            else:
                self._registered[key] = registration
            try:
                self._write(registration or json.dumps([key]))
            except OSError:  # the reaper was killed: start another with all registrations
                self._pipe = None
                self._write("\n".join(self._registered.values()))

    def _write(self, lines: str) -> None:
        if self._pipe is None:
            self._pipe = _start()
        os.write(self._pipe, f"{lines}\n".encode())


REAPER = Reaper()
"""One for all sandboxes of this process."""


def _start() -> int:
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
            setsid=True,  # it must not receive the terminal's Ctrl-C
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return write_end


def main() -> None:
    registered: dict[int | str, list[Any]] = {}
    for line in sys.stdin:
        if not line.strip():
            continue
        key, *rest = json.loads(line)
        registered.pop(key, None)
        if rest:
            registered[key] = rest
    sessions = {key for key in registered if isinstance(key, int)}
    users = {registered[key][0] for key in sessions} - {None}
    words = {str(session) for session in sessions}
    kill_matching(
        lambda pid, uid: uid in users or not words.isdisjoint(stat_of(pid)[3:4]), _REAPER_SWEEPS, _PAUSE_S
    )
    for key, (engine, _) in registered.items():
        if isinstance(key, str):
            _remove_container(key, engine)
    for _, folder in registered.values():
        os.spawnve(os.P_WAIT, _RM, ["rm", "-rf", "--", folder], {})  # handles any depth


def _remove_container(name: str, engine: str) -> None:
    request = f"DELETE /containers/{name}?force=1&v=1 HTTP/1.0\r\nHost: engine\r\n\r\n"
    for _ in range(_ENGINE_TRIES):
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


if __name__ == "__main__":
    main()
