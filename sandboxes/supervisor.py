"""Supervises a job on every backend: a warm process tree gets it, and is killed at a limit or at the end."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.errors import DeviceError, SandboxError
from sandboxes.gpu import watch_gpu
from sandboxes.job import ExitFacts, Job, ProcessTree, Status, TreeExit, UnstoppableError, Usage
from sandboxes.nvml import XidWatch, faulted
from sandboxes.scratch import collect_files, fill
from sandboxes.starvation import Starvation

_POLL_S: Final = 0.02
_STARVATION_POLL_S: Final = 1.0
_OUTPUT_KILL_FACTOR: Final = 16
_READY_S: Final = 120.0  # importing torch from a cold disk on a loaded machine took 40 s
_MESSAGE_BYTES: Final = 1 << 16
_MAX_DIRECTORIES: Final = 8
_END_S: Final = 10.0
_LATE_XID_S: Final = 0.2  # a GPU may report a fault after the process that caused it has ended


class WarmProcess:
    """A process tree whose inside.py is ready; it has no job yet, and no student file."""

    def __init__(self, tree: ProcessTree) -> None:
        self.tree = tree
        try:
            self.scratch, *self.counted = self._receive_directories()
        except BaseException:
            discard(tree)
            raise

    def _receive_directories(self) -> array.array[int]:
        """Descriptors of the scratch directory and of other writable file systems."""
        channel, width = self.tree.channel, array.array("i").itemsize
        channel.settimeout(_READY_S)
        descriptors = array.array("i")
        try:
            data, ancillary, _, _ = channel.recvmsg(
                _MESSAGE_BYTES, socket.CMSG_SPACE(_MAX_DIRECTORIES * width), socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise SandboxError(f"a sandbox did not start: {error}: {self.tree.startup_output()}") from error
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(payload[: len(payload) - len(payload) % width])
        if not data or not descriptors:
            raise SandboxError(f"a sandbox did not start: {self.tree.startup_output() or 'it ended at once'}")
        channel.settimeout(None)
        return descriptors

    def is_alive(self) -> bool:
        """Whether inside.py still waits for a job: nothing was sent, and the channel is open."""
        try:
            self.tree.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        for directory in (self.scratch, *self.counted):
            os.close(directory)
        discard(self.tree)


def discard(tree: ProcessTree) -> None:
    tree.kill()
    waiter = threading.Thread(target=tree.wait, daemon=True)
    waiter.start()
    waiter.join(_END_S)
    tree.channel.close()
    tree.release()


class RunningProcess:
    channel: socket.socket

    def __init__(self, warm: WarmProcess, job: Job) -> None:
        self._job = job
        self._gpu: XidWatch | None = None
        self._tree = warm.tree
        self._scratch = warm.scratch
        self._directories = (warm.scratch, *warm.counted)
        self.channel = warm.tree.channel
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
        self._frozen_s = 0.0
        self._starvation = Starvation(job.cpus) if job.role == "build" else None
        self._started = time.monotonic()
        try:
            if job.device is not None:
                self._gpu = watch_gpu(job.device)
            fill(self._scratch, job.inputs)
            self._send_job()
        except BaseException as error:
            warm.close()
            if self._gpu is not None:
                self._gpu.close()
            if isinstance(error, OSError):
                raise SandboxError(f"a sandbox could not be given its job: {error}") from error
            raise
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    def _send_job(self) -> None:
        """Returns when inside.py has become the job."""
        failures, failures_end = os.pipe()
        output, output_end = os.pipe()
        try:
            order = json.dumps({"argv": list(self._job.argv)}).encode()
            socket.send_fds(self.channel, [order], [failures_end, output_end])
        except BaseException:
            os.close(output)
            os.close(failures)
            raise
        finally:
            os.close(failures_end)
            os.close(output_end)
        with os.fdopen(failures, "rb") as stream:
            failure = stream.read(_MESSAGE_BYTES).decode(errors="replace")  # empty once it is the job
        if failure:
            os.close(output)
            raise SandboxError(f"a sandbox could not start its job: {failure.strip()}")
        self._reader = threading.Thread(target=self._read_output, args=(output,), daemon=True)
        self._reader.start()

    def _read_output(self, descriptor: int) -> None:
        limit = self._job.limits.output_bytes
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 16):
                self._output_total += len(chunk)
                self._output += chunk[: max(0, limit - len(self._output))]
                if self._output_total > _OUTPUT_KILL_FACTOR * limit:
                    self._end("output_limit")

    def _thawed_s(self) -> float:
        """Seconds since the start, frozen time excluded."""
        now, since = time.monotonic(), self._frozen_since
        return now - self._started - self._frozen_s - (0.0 if since is None else now - since)

    def _watch(self) -> None:
        starvation_polled = 0.0
        while not self._done.wait(_POLL_S):
            usage = self._tree.usage()
            if self._starvation is not None and time.monotonic() - starvation_polled > _STARVATION_POLL_S:
                self._starvation.poll(self._tree.members(), usage.cpu_s)
                starvation_polled = time.monotonic()
            self._peak = max(self._peak, usage.memory_bytes or 0)
            verdict = self._exceeded(usage)
            if verdict is not None:
                self._end(verdict)
                return

    def _exceeded(self, usage: Usage) -> Status | None:
        limits = self._job.limits
        if self._thawed_s() > limits.wall_s:
            return "wall_timeout"
        if (
            limits.memory_bytes is not None
            and not self._tree.caps_memory
            and self._peak > limits.memory_bytes
        ):
            return "oom"
        if limits.cpu_s is not None and (usage.cpu_s or 0.0) > limits.cpu_s + 1.0:
            return "cpu_timeout"
        if self._tree.caps_scratch:  # not every backend has the kernel limit inodes
            systems = [os.fstatvfs(directory) for directory in self._directories]
            if sum(facts.f_files - facts.f_ffree for facts in systems) > limits.scratch_files:
                return "disk_limit"
        return None

    def _wait_for_end(self) -> None:
        try:
            ended = self._tree.wait()
            self._tree.kill()  # whatever outlives the first process
        except SandboxError as error:
            ended = TreeExit(code=None, problem=str(error))
        wall_s = time.monotonic() - self._started
        self._reader.join(timeout=2)
        ended = self._with_gpu_faults(ended)
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

    def _with_gpu_faults(self, ended: TreeExit) -> TreeExit:
        """Adds Xids that the GPU reported; after our own kill they are ignored, since killing causes some."""
        if self._gpu is None:
            return ended
        try:
            late_s = 0.0 if ended.code == 0 or self._killed else _LATE_XID_S
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
        scratch = os.fstatvfs(self._scratch) if self._tree.caps_scratch else None
        if ended.signal == signal.SIGXFSZ or (scratch and 0 in (scratch.f_bavail, scratch.f_ffree)):
            return "disk_limit"
        return "nonzero" if ended.signal is None else "signal"

    def _end(self, verdict: Status) -> None:
        self._verdict = self._verdict or verdict
        with suppress(SandboxError):  # _wait_for_end reports a tree that could not be killed
            self.kill()

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        self._done.wait(timeout_s)
        return self._facts

    def kill(self) -> None:
        if not self._done.is_set():
            self._killed = True
            self._tree.kill()

    def pause(self, paused: bool) -> float:
        """Freeze or thaw the tree; frozen time does not count towards the wall-clock limit. When
        (time.monotonic) it was frozen or thawed.

        A tree that cannot be frozen is killed, with the status `wall_timeout`. Raises ValueError for a build:
        its processes may leave the process group.
        """
        if self._job.role == "build":
            raise ValueError("a build cannot be frozen")
        if self._done.is_set():
            return time.monotonic()
        try:
            at = self._tree.freeze(paused) or time.monotonic()
        except UnstoppableError:
            self._end("wall_timeout")
            return time.monotonic()
        if paused and self._frozen_since is None:
            self._frozen_since = at
        elif not paused and self._frozen_since is not None:
            self._frozen_s += at - self._frozen_since
            self._frozen_since = None
        return at

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        return collect_files(self._scratch, allow, destination)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.kill()
        self._done.wait(_END_S)
        self._watcher.join(_END_S)  # it reads the scratch directory
        self.channel.close()
        for directory in self._directories:
            os.close(directory)
        self._tree.release()
