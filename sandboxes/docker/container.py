"""One container around one job: from its creation to its removal.

Kill() ends the container's first process, with which the kernel ends all others of its process namespace;
it needs no engine. Where the engine failed, wait() says `problem`, never an exit code.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker.errors

from harness.errors import SandboxError
from sandboxes.cgroups import ForeignCgroup
from sandboxes.docker.door import PLACE, Door
from sandboxes.docker.engine import ENGINE_ERRORS, DockerEngine, asking, explained
from sandboxes.freeze import stand_still
from sandboxes.host_process import REAPER
from sandboxes.job import STOP_S, TreeExit, UnstoppableError, Usage
from sandboxes.orphans import Owner

_READY_S: Final = 120.0  # as long as running.py waits for what comes next
_LOOK_S: Final = 0.25
_ROUND_S: Final = 10.0  # an engine that says nothing for so long after a container's end hangs
_SECOND_LOOK_S: Final = 0.3  # an engine that stops, or removes a container, is seen to do so after this
# The engine's own list, and the files by which any user may give a kernel thread work (pressure triggers).
_READ_ONLY_PATHS: Final = [
    *("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"),
    "/proc/pressure",
]
_REMOVED: Final = "a container was removed by somebody else while it ran"
_WORDS_LINES: Final = 40
_WORDS_CHARACTERS: Final = 1 << 14


@dataclass(frozen=True)
class Plan:
    """What to make a container with."""

    settings: Mapping[str, Any]
    """Arguments of the SDK's create_container but name, volumes and host_config."""
    host: Mapping[str, Any]
    """Arguments of the SDK's create_host_config but the channel's mount."""
    uid: int
    """Who will connect to us."""
    caps_memory: bool
    leaves_group: bool
    """Its processes may leave the process group that they begin in."""


class Container:
    """A container whose first program is inside.py."""

    channel: socket.socket
    caps_scratch = True

    def __init__(self, engine: DockerEngine, plan: Plan) -> None:
        """Raises SandboxError; nothing is left then."""
        self._engine = engine
        self._plan = plan
        self.caps_memory = plan.caps_memory
        self.name = f"liftbench-{Owner.ours()}-{secrets.token_hex(6)}"
        self._lock = threading.Lock()
        self._init: int | None = None
        self._group: ForeignCgroup | None = None
        self._process_group: int | None = None
        self._frozen = False
        self._killed = False
        self._released = False
        self._engine_hangs = False
        self._cpu_s: float | None = None
        self._peak_bytes: int | None = None
        self._own_oom: bool | None = None
        self._door = Door(plan.uid)
        REAPER.watch_container(self.name, engine.address, self._door.folder)
        try:
            self._start()
        except BaseException:
            if hasattr(self, "channel"):
                self.channel.close()
            self.release()
            raise

    # --- start -----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Make and start the container, and wait for inside.py to connect."""
        api = self._engine.api
        channel = docker.types.Mount(PLACE, str(self._door.folder), type="bind", read_only=True)
        host = {**self._plan.host, "mounts": [*self._plan.host["mounts"], channel]}
        config = api.create_host_config(**host) | {"ReadonlyPaths": _READ_ONLY_PATHS}
        with asking("make a container"):
            made = api.create_container(name=self.name, host_config=config, **self._plan.settings)
        with asking("start a container"):
            api.start(made["Id"])
        self.channel, pid = self._connected()
        self._find(pid, made["Id"])

    def _connected(self) -> tuple[socket.socket, int]:
        """The connection from the container, and the process id at its other end. Raises SandboxError."""
        deadline = time.monotonic() + _READY_S
        while (found := self._door.let_in(_LOOK_S)) is None:
            state = self._state()
            if not state.get("Running"):
                said = state.get("Error") or self.words() or "it said nothing"
                code = state.get("ExitCode")
                raise SandboxError(f"a container ended before it was ready (exit code {code}): {said}")
            if time.monotonic() > deadline:
                raise SandboxError(f"a container was not ready after {_READY_S:.0f} s: {self.words()}")
        return found

    def _find(self, pid: int, identity: str) -> None:
        """The container's first process and control group, where we can see them."""
        if pid <= 0:
            return  # in another namespace of process ids: all goes through the engine
        try:
            self._group = ForeignCgroup.of_process(pid, identity)
            parent = int(_status(pid)["PPid"])
            self._init = os.pidfd_open(parent)
            # Inside, the first process has number 1. Asked after the handle was there, so that it is no
            # later process with that number.
            right = _status(parent).get("NSpid", "").split()[1:] == ["1"] and identity in _groups(parent)
        except (OSError, KeyError, ValueError):
            right = False  # it ends already
        if self._init is not None and not right:
            os.close(self._init)
            self._init = None
        if self._init is not None and not self._plan.leaves_group:
            self._process_group = _group_to_signal(pid)

    # --- the cage --------------------------------------------------------------------------------

    def wait(self) -> TreeExit:
        """Block until the container has stopped."""
        try:
            self._wait_for_stop()
            state = self._state()
            if state.get("ExitCode") in (128 + signal.SIGKILL, 128 + signal.SIGTERM) and not self._killed:
                # By itself, or by an engine that stops, or by somebody who removes it?
                time.sleep(_SECOND_LOOK_S)
                state = self._state()
        except SandboxError as error:
            return TreeExit(code=None, problem=str(error))
        if state.get("Status") != "exited":
            return TreeExit(code=None, problem=_REMOVED)
        code = int(state["ExitCode"])
        number = code - 128 if 0 < code - 128 <= signal.NSIG else None  # so reports docker-init
        return TreeExit(
            code=None if number else code,
            signal=number,
            oom=bool(state.get("OOMKilled")) if self._own_oom is None else self._own_oom,
            peak_memory_bytes=self._peak_bytes,
            cpu_s=self._cpu_s,
        )

    def _wait_for_stop(self) -> None:
        """Raises SandboxError when the engine went away, or hangs, or has no such container."""
        since: float | None = None
        while True:
            try:
                self._engine.api.wait(self.name, timeout=_ROUND_S)
                return
            except docker.errors.NotFound:
                raise SandboxError(_REMOVED) from None
            except docker.errors.DockerException as error:
                raise SandboxError(f"the Docker engine failed during a job: {explained(error)}") from error
            except OSError as error:
                if "timed out" not in str(error):  # it comes under several names
                    raise SandboxError(
                        f"the Docker engine went away during a job ({error}): start it again, "
                        "the trial will be repeated"
                    ) from error
                if self._ended_for_us():
                    since = since or time.monotonic()
                    if time.monotonic() - since > _ROUND_S:
                        self._engine_hangs = True
                        raise SandboxError("the Docker engine does not answer: restart it") from error

    def _ended_for_us(self) -> bool:
        """Whether the container's first process has ended, or we have killed it and cannot see."""
        if self._init is None:
            return self._killed
        return bool(select.select([self._init], [], [], 0)[0])

    def _state(self) -> dict[str, Any]:
        """What the engine says of it; empty when it has none. Raises SandboxError."""
        with asking("tell of a container"):
            try:
                state: dict[str, Any] = self._engine.api.inspect_container(self.name)["State"]
            except docker.errors.NotFound:
                return {}
        return state

    def kill(self) -> None:
        """End the container's first process, and with it all others."""
        with self._lock:
            if self._released:
                return
            self._killed = True
            self._end_all()
        if self._init is None:
            with suppress(*ENGINE_ERRORS):  # it has ended, or wait() tells what is wrong with the engine
                self._engine.api.kill(self.name)

    def _end_all(self) -> None:
        if self._init is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
        if self._frozen:  # a frozen process does not die
            with suppress(SandboxError):  # wait() tells what is wrong
                self._freeze(False)

    def freeze(self, frozen: bool) -> None:
        """As fast as we may: by signal (0.2 ms), control group (1 ms), or engine (30 ms).

        Raises SandboxError, or UnstoppableError.
        """
        with self._lock:
            if self._released or self._killed:
                return
            self._freeze(frozen)

    def _freeze(self, frozen: bool) -> None:
        if self._process_group is not None:
            if not self._ended_for_us():  # else the number may be another's by now
                with suppress(ProcessLookupError):
                    os.killpg(self._process_group, signal.SIGSTOP if frozen else signal.SIGCONT)
                    if frozen and self._group is not None:
                        self._stand_still(self._group, self._process_group)
        elif self._group is not None and self._group.can_freeze():
            if frozen:
                order = self._group.thaw_order()
                REAPER.watch_container(self.name, self._engine.address, self._door.folder, order)
            self._group.freeze(frozen)
        else:
            with asking("freeze or thaw a container"), suppress(docker.errors.NotFound):
                (self._engine.api.pause if frozen else self._engine.api.unpause)(self.name)
        self._frozen = frozen

    def _stand_still(self, members: ForeignCgroup, group: int) -> None:
        if not stand_still(members.members, group, STOP_S):
            self._frozen = True  # some of it is: killing must thaw it
            raise UnstoppableError(f"some thread did not stop within {STOP_S:.0f} s")

    def usage(self) -> Usage:
        """Of its control group; unknown where that cannot be read."""
        group = self._group
        if group is None:
            return Usage()
        usage = Usage(group.memory_bytes(), group.cpu_s())
        # Kept: the group is gone as soon as the container stops.
        self._cpu_s = usage.cpu_s if usage.cpu_s is not None else self._cpu_s
        self._peak_bytes = group.peak_memory_bytes() or self._peak_bytes
        if group.oom_kills():
            self._own_oom = group.reached_its_limit()
        return usage

    def members(self) -> list[int]:
        """Its processes now; none where its control group cannot be read."""
        return [] if self._group is None else self._group.members()

    def words(self) -> str:
        """What it printed before it was ready."""
        try:
            text: bytes = self._engine.api.logs(self.name, tail=_WORDS_LINES)
        except ENGINE_ERRORS as error:
            return f"(its words are lost: {explained(error)})"
        return text.decode(errors="replace")[-_WORDS_CHARACTERS:].strip()

    def release(self) -> None:
        """Remove the container and what leads into it.

        Where the engine cannot do it now, reaper.py asks again when we end, and reaper.py at the next start.
        """
        with self._lock:
            if self._released:
                return
            self._end_all()
            self._released = True
        removed = not self._engine_hangs and self._remove()
        if self._init is not None:
            os.close(self._init)
        self._door.close()
        if removed:
            REAPER.forget(self.name)

    def _remove(self) -> bool:
        """Whether the engine has no such container any more."""
        try:
            self._engine.api.remove_container(self.name, force=True, v=True)
        except docker.errors.NotFound:
            return True  # It was never made.
        except ENGINE_ERRORS:
            return False
        return True


def _group_to_signal(pid: int) -> int | None:
    """The process group of `pid`, if we may stop it."""
    try:
        group = os.getpgid(pid)
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return None
    return group


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _groups(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()
