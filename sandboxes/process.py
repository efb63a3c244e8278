"""The Process of every backend: a job in a cage, from `go` to its end.

`sandbox_error` comes from us or from the backend, never from anything a job does: until inside.py has
become the job, a failure raises SandboxError; afterwards an exit code is only an exit code.
"""

from __future__ import annotations

import array
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.errors import DeviceError, SandboxError
from sandboxes.gpu import watch_gpu
from sandboxes.job import ExitFacts, Job, ProcessTree, Status, TreeExit, UnstoppableError
from sandboxes.nvml import XidWatch, faulted
from sandboxes.scratch import collect_files, fill
from sandboxes.starvation import Starvation

_WATCH_INTERVAL_S: Final = 0.02
_LOOK_INTERVAL_S: Final = 1.0
_OUTPUT_KILL_FACTOR: Final = 16
_READY_S: Final = 120.0  # torch from a cold disk on a loaded machine took 40 s
_MESSAGE_BYTES: Final = 1 << 16
_MOST_PLACES: Final = 8
_END_S: Final = 10.0
_REMOVAL_S: Final = 1.0
# A plain user cannot remove what is in a directory that the job has closed; links are never followed.
_REMOVE: Final = 'rm -rf -- "$1" || { find "$1" -type d -exec chmod u+rwx {} \\;; rm -rf -- "$1"; }'
_LATE_S: Final = 0.2  # a GPU may tell of a fault after the process that caused it has ended


class WarmProcess:
    """A cage whose inside.py is ready: no job yet, and no byte of a student's."""

    def __init__(self, cage: ProcessTree) -> None:
        """Waits until it is ready. Raises SandboxError, and releases the cage then."""
        self.cage = cage
        try:
            self.scratch, *self.counted = self._ready()
        except BaseException:
            discard(cage)
            raise

    def _ready(self) -> array.array[int]:
        """Descriptors of the scratch directory, and of other places whose files count."""
        channel, width = self.cage.channel, array.array("i").itemsize
        channel.settimeout(_READY_S)
        descriptors = array.array("i")
        try:
            data, ancillary, _, _ = channel.recvmsg(
                _MESSAGE_BYTES, socket.CMSG_SPACE(_MOST_PLACES * width), socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise SandboxError(f"a sandbox did not start: {error}: {self.cage.words()}") from error
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(payload[: len(payload) - len(payload) % width])
        if not data or not descriptors:
            raise SandboxError(f"a sandbox did not start: {self.cage.words() or 'it ended at once'}")
        channel.settimeout(None)
        return descriptors

    def close(self) -> None:
        """End it without ever having given it a job."""
        for place in (self.scratch, *self.counted):
            os.close(place)
        discard(self.cage)


def discard(cage: ProcessTree) -> None:
    """Kill what is in a cage and release it."""
    cage.kill()
    waiter = threading.Thread(target=cage.wait, daemon=True)
    waiter.start()
    waiter.join(_END_S)
    cage.channel.close()
    cage.release()


class RunningProcess:
    """A running job."""

    channel: socket.socket

    def __init__(self, standing: WarmProcess, job: Job) -> None:
        """Gives `job` to a cage that stands by. Raises SandboxError when it could not be started."""
        self._job = job
        self._gpu: XidWatch | None = None
        self._cage = standing.cage
        self._scratch = standing.scratch
        self._places = (standing.scratch, *standing.counted)
        self.channel = standing.cage.channel
        self._verdict: Status | None = None
        self._output = bytearray()
        self._output_total = 0
        self._peak = 0
        self._facts: ExitFacts | None = None
        self._done = threading.Event()
        self._closed = False
        self._faulted = False
        self._killed = False
        self._frozen_since: float | None = None
        self._starvation = Starvation(job.cpus) if job.role == "build" else None
        self._frozen_s = 0.0
        self._started = time.monotonic()
        try:
            if job.device is not None:
                self._gpu = watch_gpu(job.device)
            fill(self._scratch, job.inputs)
            self._go()
        except BaseException as error:
            standing.close()
            if self._gpu is not None:
                self._gpu.close()
            if isinstance(error, OSError):
                raise SandboxError(f"a sandbox could not be given its job: {error}") from error
            raise
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    # --- start ---------------------------------------------------------------------------------

    def _go(self) -> None:
        """Send the order; returns when inside.py has become the job."""
        failures, failures_end = os.pipe()
        output, output_end = os.pipe()
        try:
            rights = array.array("i", [failures_end, output_end])
            order = json.dumps({"argv": list(self._job.argv)}).encode()
            self.channel.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except BaseException:
            os.close(output)
            os.close(failures)
            raise
        finally:
            os.close(failures_end)
            os.close(output_end)
        with os.fdopen(failures, "rb") as stream:
            failure = stream.read(_MESSAGE_BYTES)  # nothing, once it has become the job
        if failure:
            os.close(output)
            raise SandboxError(
                f"a sandbox could not start its job: {failure.decode(errors='replace').strip()}"
            )
        self._reader = threading.Thread(target=self._read_output, args=(output,), daemon=True)
        self._reader.start()

    # --- while it runs -------------------------------------------------------------------------

    def _read_output(self, descriptor: int) -> None:
        cap = self._job.limits.output_bytes
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 16):
                self._output_total += len(chunk)
                self._output += chunk[: max(0, cap - len(self._output))]
                if self._output_total > _OUTPUT_KILL_FACTOR * cap:
                    self._end("output_limit")

    def _thawed_s(self) -> float:
        """Seconds since the start in which it was not frozen."""
        now, since = time.monotonic(), self._frozen_since
        return now - self._started - self._frozen_s - (0.0 if since is None else now - since)

    def _watch(self) -> None:
        limits = self._job.limits
        looked_at = 0.0
        while not self._done.wait(_WATCH_INTERVAL_S):
            if self._thawed_s() > limits.wall_s:
                self._end("wall_timeout")
                return
            usage = self._cage.usage()
            if self._starvation is not None and time.monotonic() - looked_at > _LOOK_INTERVAL_S:
                self._starvation.look(self._cage.members(), usage.cpu_s)
                looked_at = time.monotonic()
            self._peak = max(self._peak, usage.memory_bytes or 0)
            most = None if self._cage.caps_memory else limits.memory_bytes
            if most is not None and self._peak > most:
                self._end("oom")
                return
            if limits.cpu_s is not None and (usage.cpu_s or 0.0) > limits.cpu_s + 1.0:
                self._end("cpu_timeout")
                return
            if self._cage.caps_scratch and self._files() > limits.scratch_files:
                self._end("disk_limit")
                return

    def _files(self) -> int:
        """How many there are in scratch and other places, where these are file systems of their own.

        Not every backend can have the kernel limit them.
        """
        return sum(facts.f_files - facts.f_ffree for facts in map(os.fstatvfs, self._places))

    def _wait_for_end(self) -> None:
        try:
            ended = self._cage.wait()
            self._cage.kill()  # whatever has outlived the first process
        except SandboxError as error:  # else nobody would ever be told of an end
            ended = TreeExit(code=None, problem=str(error))
        wall_s = time.monotonic() - self._started
        self._reader.join(timeout=2)
        ended = self._with_faults(ended)
        self._facts = ExitFacts(
            status=self._status(ended),
            code=ended.code,
            signal=ended.signal,
            wall_s=wall_s,
            cpu_s=ended.cpu_s,
            peak_memory_bytes=max(self._peak, ended.peak_memory_bytes or 0) or None,
            output=ended.problem or self._output.decode(errors="replace"),
            starved_s=None if self._starvation is None else self._starvation.seconds,
        )
        self._done.set()

    def _with_faults(self, ended: TreeExit) -> TreeExit:
        """What the GPU reported while it ran; our own killing counts for nothing, since it causes some."""
        if self._gpu is None:
            return ended
        try:
            late_s = 0.0 if ended.code == 0 else _LATE_S
            self._faulted = faulted(self._gpu.take(late_s), str(self._job.device)) and not self._killed
        except DeviceError as error:
            return replace(ended, problem=ended.problem or str(error))
        finally:
            self._gpu.close()
        return ended

    def _status(self, ended: TreeExit) -> Status:
        if self._verdict is not None:
            return self._verdict
        if ended.problem is not None:
            return "sandbox_error"
        if self._faulted:
            return "gpu_fault"
        if ended.code == 0:
            return "ok"
        if ended.oom:
            return "oom"
        if ended.signal == signal.SIGXCPU:
            return "cpu_timeout"
        if ended.signal == signal.SIGXFSZ or self._scratch_is_full():
            return "disk_limit"
        return "nonzero" if ended.signal is None else "signal"

    def _scratch_is_full(self) -> bool:
        """Whether a file system of its own has no room left, so that it probably failed for that."""
        if not self._cage.caps_scratch:
            return False
        facts = os.fstatvfs(self._scratch)
        return facts.f_bavail == 0 or facts.f_ffree == 0

    def _end(self, verdict: Status) -> None:
        self._verdict = self._verdict or verdict
        with suppress(SandboxError):  # what could not be killed is told by _wait_for_end
            self.kill()

    # --- the seam ------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        """The exit facts, or None if it still runs after timeout_s."""
        self._done.wait(timeout_s)
        return self._facts

    def kill(self) -> None:
        """End the whole process tree now."""
        if not self._done.is_set():
            self._killed = True
            self._cage.kill()

    def pause(self, paused: bool) -> None:
        """Freeze or thaw the tree. Frozen time does not count towards the wall-clock limit.

        When it returns all stand still. A tree that cannot be stopped is ended, as `wall_timeout`.
        """
        if self._done.is_set():
            return
        try:
            self._cage.freeze(paused)
        except UnstoppableError:
            self._end("wall_timeout")
            return
        if paused and self._frozen_since is None:
            self._frozen_since = time.monotonic()
        elif not paused and self._frozen_since is not None:
            self._frozen_s += time.monotonic() - self._frozen_since
            self._frozen_since = None

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        """Copy regular files that match out of the scratch directory. Raises CollectError."""
        return collect_files(self._scratch, allow, destination)

    def close(self) -> None:
        """Kill, release and remove. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        self._done.wait(_END_S)
        self._watcher.join(_END_S)  # it looks at the scratch directory
        self.channel.close()
        for place in self._places:
            os.close(place)
        self._cage.release()


def remove_tree(directory: Path, within_s: float = _REMOVAL_S) -> None:
    """Remove what a job has left, however much that is and however deep it is nested.

    Waits for it a short time only: on some disks every directory takes milliseconds, which no student's
    measured time should include. The rest goes on beside us; what our end interrupts, the next start removes.
    """
    removal = threading.Thread(target=_remove, args=(directory,), daemon=True)
    removal.start()
    removal.join(within_s)


def _remove(directory: Path) -> None:
    with suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if not os.path.lexists(directory):
        return
    # Nested too deep, or closed by the job.
    subprocess.run(
        ["/bin/sh", "-c", _REMOVE, "sh", str(directory)],
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
