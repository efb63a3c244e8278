"""One container around one job, from its creation to its removal.

When the engine fails, wait() reports a `problem`, never an exit code.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import docker.errors

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup
from sandboxes.docker.engine import ENGINE_ERRORS, DockerEngine, engine_errors, explained
from sandboxes.freeze import confirm_stopped
from sandboxes.host_process import tree_of
from sandboxes.job import TreeExit, Usage
from sandboxes.orphans import owned_prefix
from sandboxes.reaper import REAPER
from sandboxes.scratch import remove_tree

_READY_S: Final = 120.0
_POLL_S: Final = 0.25
_WAIT_S: Final = 10.0  # an engine that is silent for so long after a container's end hangs
_SEEN_S: Final = 3.0  # after this an engine has seen a container's end, and has its output
_RECHECK_S: Final = 1.0  # after this an engine that stops, or removes a container, is seen to do so
# The engine's own list, and pressure triggers, by which any user may give a kernel thread work.
_READ_ONLY_PATHS: Final = [
    *("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"),
    "/proc/pressure",
]
_INVISIBLE: Final = (
    "a container's processes are not visible here: liftbench runs in a container itself; run it on the"
    " engine's own machine"
)
_REMOVED: Final = "a container was removed by somebody else while it ran"
_LOG_LINES: Final = 40
_LOG_CHARACTERS: Final = 1 << 14
_SOCKET_FOLDER: Final = "/liftbench-channel"
SOCKET: Final = f"{_SOCKET_FOLDER}/socket"
"""Path of the control socket inside the container."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred, unix(7)


class ControlSocket:
    """A listening socket in a folder that is mounted into a container. One connection is accepted."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=owned_prefix("channel")))
        except OSError as error:
            raise SandboxError(f"no folder for a container's channel: {error}; is the disk full?") from error
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listen()
        except OSError as error:
            self.close()
            raise SandboxError(f"no socket for a container's channel in {self.folder}: {error}") from error

    def _listen(self) -> None:
        self.folder.chmod(0o711)
        directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # A socket's path has at most 107 characters; that of a temporary folder may have more.
            self._listener.bind(f"/proc/self/fd/{directory}/socket")
        finally:
            os.close(directory)
        socket_file = self.folder / "socket"
        socket_file.chmod(0o600)
        os.chown(socket_file, self._uid, -1)
        self._listener.listen(1)

    def accept(self, timeout_s: float) -> tuple[socket.socket, int] | None:
        """The connection and the peer's process id; None after timeout_s. Removes the socket."""
        self._listener.settimeout(timeout_s)
        try:
            channel, _ = self._listener.accept()
        except TimeoutError:
            return None
        pid, uid, _ = _CREDENTIALS.unpack(
            channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid != self._uid:  # a user of this machine who guessed the path
            channel.close()
            return None
        channel.settimeout(None)
        self._listener.close()
        (self.folder / "socket").unlink()
        return channel, pid

    def close(self) -> None:
        self._listener.close()
        remove_tree(self.folder)


class Container:
    """A container whose first program is inside.py."""

    channel: socket.socket
    caps_scratch = True

    def __init__(
        self, engine: DockerEngine, uid: int, settings: Mapping[str, Any], host: Mapping[str, Any]
    ) -> None:
        """`settings`: arguments of the SDK's create_container; `host`: of its create_host_config.

        Raises SandboxError, and leaves nothing behind.
        """
        self._engine = engine
        self.caps_memory = host["mem_limit"] is not None
        self.name = owned_prefix("container") + secrets.token_hex(6)
        self._lock = threading.Lock()
        self._init: int | None = None
        """A pidfd of the container's first process."""
        self._group: Cgroup | None = None
        self._killed = False
        self._released = False
        self._engine_hangs = False
        self._cpu_s: float | None = None
        self._peak_bytes: int | None = None
        self._own_oom: bool | None = None
        self._control = ControlSocket(uid)
        REAPER.watch_container(self.name, engine.address, self._control.folder)
        try:
            self._start(settings, host)
        except BaseException:
            if hasattr(self, "channel"):
                self.channel.close()
            self.release()
            raise

    def _start(self, settings: Mapping[str, Any], host: Mapping[str, Any]) -> None:
        api = self._engine.api
        channel = docker.types.Mount(_SOCKET_FOLDER, str(self._control.folder), type="bind", read_only=True)
        config = api.create_host_config(**{**host, "mounts": [*host["mounts"], channel]})
        config["ReadonlyPaths"] = _READ_ONLY_PATHS
        with engine_errors("make a container"):
            made = api.create_container(name=self.name, host_config=config, **settings)
        with engine_errors("start a container"):
            api.start(made["Id"])
        self.channel, self._inside = self._connected()
        self._find_processes(made["Id"])

    def _connected(self) -> tuple[socket.socket, int]:
        """The connection from the container, and the peer's process id. Raises SandboxError."""
        deadline = time.monotonic() + _READY_S
        while (found := self._control.accept(_POLL_S)) is None:
            state, late = self._state(), time.monotonic() > deadline
            if late or not state.get("Running"):
                raise self._not_ready(state, late=late)
        return found

    def _not_ready(self, state: Mapping[str, Any], *, late: bool = False) -> SandboxError:
        output = state.get("Error") or self.startup_output() or "no output"
        ended = f"ended before it was ready ({state.get('ExitCode')})"
        what = f"was not ready after {_READY_S:.0f} s" if late else ended
        return SandboxError(f"a container {what}: {output}")

    def _unseen(self) -> SandboxError:
        """Why its processes cannot be found: it has ended, or they are in another PID namespace than ours.

        An engine may say "Running" for a while after the end.
        """
        deadline = time.monotonic() + _SEEN_S
        while (state := self._state()).get("Running"):
            if time.monotonic() > deadline:
                return SandboxError(_INVISIBLE)
            time.sleep(_POLL_S)
        return self._not_ready(state)

    def _find_processes(self, identity: str) -> None:
        """Raises SandboxError."""
        try:
            self._group = Cgroup.of_container(self._inside, identity)
            self._first = int(_status(self._inside)["PPid"])
            handle = os.pidfd_open(self._first)
        except (OSError, KeyError, ValueError):
            raise self._unseen() from None
        # Checked after the pidfd is open, so that it is no later process with that number. The first
        # process has number 1 inside.
        with suppress(OSError):
            number = _status(self._first).get("NSpid", "").split()[1:]
            if number == ["1"] and identity in Path(f"/proc/{self._first}/cgroup").read_text():
                self._process_group = os.getpgid(self._inside)
                self._init = handle
                return
        os.close(handle)
        raise self._unseen()

    def wait(self) -> TreeExit:
        try:
            self._wait_for_stop()
            state = self._state()
            if state.get("ExitCode") in (128 + signal.SIGKILL, 128 + signal.SIGTERM) and not self._killed:
                # By itself, by an engine that stops, or by somebody who removes it?
                time.sleep(_RECHECK_S)
                state = self._state()
        except SandboxError as error:
            return TreeExit(code=None, problem=str(error))
        if state.get("Status") != "exited":
            return TreeExit(code=None, problem=_REMOVED)
        code = int(state["ExitCode"])
        number = code - 128 if 0 < code - 128 <= signal.NSIG else None  # as docker-init reports signals
        return TreeExit(
            code=None if number else code,
            signal=number,
            oom=bool(state.get("OOMKilled")) if self._own_oom is None else self._own_oom,
            peak_memory_bytes=self._peak_bytes,
            cpu_s=self._cpu_s,
        )

    def _wait_for_stop(self) -> None:
        """Raises SandboxError when the engine is gone or hangs, or has no such container."""
        since: float | None = None
        while True:
            try:
                self._engine.api.wait(self.name, timeout=_WAIT_S)
                return
            except docker.errors.NotFound:
                raise SandboxError(_REMOVED) from None
            except ENGINE_ERRORS as error:
                if isinstance(error, docker.errors.DockerException) or "timed out" not in str(error):
                    raise SandboxError(
                        f"the Docker engine failed or went away during a job ({explained(error)}): if it is"
                        " gone, start it again; the trial will be repeated"
                    ) from error
                if self._has_ended():
                    since = since or time.monotonic()
                    if time.monotonic() - since > _WAIT_S:
                        self._engine_hangs = True
                        raise SandboxError("the Docker engine does not answer: restart it") from error

    def _has_ended(self) -> bool:
        return self._init is not None and bool(select.select([self._init], [], [], 0)[0])

    def _state(self) -> dict[str, Any]:
        """The engine's state of the container; empty when there is none. Raises SandboxError."""
        with engine_errors("inspect a container"):
            try:
                state: dict[str, Any] = self._engine.api.inspect_container(self.name)["State"]
            except docker.errors.NotFound:
                return {}
        return state

    def kill(self) -> None:
        with self._lock:
            if self._released:
                return
            self._killed = True
            self._kill_init()

    def _kill_init(self) -> None:
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    def freeze(self, frozen: bool) -> float | None:
        """By signal, which takes 0.2 ms; the engine's pause takes 30 ms. Raises UnstoppableError."""
        with self._lock:
            if self._released or self._killed or self._has_ended():  # else the number may be reused
                return None
            group = self._process_group
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGSTOP if frozen else signal.SIGCONT)
                return confirm_stopped(self.members, group) if frozen else None
            return None

    def usage(self) -> Usage:
        group = self._group
        if group is None:
            return Usage()
        usage = Usage(group.memory_bytes(), group.cpu_s())
        # Kept, because the group is gone as soon as the container stops.
        self._cpu_s = usage.cpu_s if usage.cpu_s is not None else self._cpu_s
        self._peak_bytes = group.peak_memory_bytes() or self._peak_bytes
        if group.oom_kills():
            self._own_oom = group.reached_memory_limit()
        return usage

    def members(self) -> list[int]:
        return list(tree_of(self._first)) if self._group is None else self._group.members()

    def startup_output(self) -> str:
        """What it has written. An engine may have it only a while after the end."""
        deadline = time.monotonic() + _SEEN_S
        while not (output := self._log()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return output

    def _log(self) -> str:
        try:
            text: bytes = self._engine.api.logs(self.name, tail=_LOG_LINES)
        except ENGINE_ERRORS as error:
            return f"(no log: {explained(error)})"
        return text.decode(errors="replace")[-_LOG_CHARACTERS:].strip()

    def release(self) -> None:
        """Remove the container and its socket; where that fails, the reaper tries again after our end."""
        with self._lock:
            if self._released:
                return
            self._kill_init()
            self._released = True
        if self._init is not None:
            os.close(self._init)
        self._control.close()
        if not self._engine_hangs:
            with suppress(*ENGINE_ERRORS):
                self._engine.api.remove_container(self.name, force=True, v=True)
                REAPER.forget(self.name)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
