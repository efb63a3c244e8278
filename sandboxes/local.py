"""The `local` backend: a process of its own, with limits, but no isolation.

What it gives: an own session and process group (which a job that is no build cannot leave), a
scrubbed environment (no API keys), rlimits, a memory watchdog, a wall-clock kill of the whole group, a
private scratch directory, and, when liftbench runs as root, an unprivileged user of its own for every
process.

What it does NOT protect: the network stays open; every file that the user may read can be read
(without root: your own files, including keys on disk); other processes of the same user can be
signalled and traced; disk use is bounded per file only. Use it for projects you trust.
Invariant: kill() ends the process group, and as root also every process of the job's user; so does our
own end, however it comes (minder.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.collect import collect_files
from sandboxes.job import ExitFacts, Job, Status
from sandboxes.launcher import LAUNCH_FAILED
from sandboxes.minder import Minder
from sandboxes.users import FreeUsers, kill_user

_LAUNCHER = Path(__file__).with_name("launcher.py")
_WATCH_INTERVAL_S = 0.02
_OUTPUT_KILL_FACTOR = 16
_MINDER: Final = Minder()  # one for all sandboxes of this process: it knows nothing but what runs


def interpreter_directories() -> list[Path]:
    """Directories that this Python needs to start and import: prefixes and site-packages."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_paths()["purelib"])}
    resolved = {p.resolve() for p in paths}
    return sorted(p for p in resolved if not any(q in p.parents for q in resolved))


class LocalSandbox:
    """Starts jobs as ordinary processes; see the module docstring for what that means."""

    name = "local"

    def __init__(self) -> None:
        self._users = FreeUsers()

    def facts(self) -> dict[str, str]:
        """What protects: for the record."""
        return {
            "user": "unprivileged, one per process" if os.geteuid() == 0 else "same as the judge",
            "network": "open",
            "files": "not isolated",
            "limits": "rlimits, memory watchdog, wall clock",
        }

    def start(self, job: Job) -> LocalProcess:
        """Start `job`; raises SandboxError when scratch space or the launcher cannot be made."""
        try:
            return LocalProcess(job, self._users.take(), _MINDER)
        except OSError as error:
            raise SandboxError(f"local sandbox could not start a process: {error}") from error


def _stat_tree(root: int) -> Iterable[int]:
    """Process ids of `root` and its descendants, as far as /proc shows them."""
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        try:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                pending.extend(int(word) for word in children.read_text().split())
        except OSError:
            continue


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _remove(directory: Path) -> None:
    """Remove what a job has left, however deep it is nested."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", directory], capture_output=True, check=False)


class LocalProcess:
    """A running local job."""

    channel: socket.socket

    def __init__(self, job: Job, uid: int | None, minder: Minder) -> None:
        """`uid`: the user to become, or None to stay the same."""
        self._job = job
        self._minder = minder
        self._uid = uid
        self._base = Path(tempfile.mkdtemp(prefix="liftbench-"))
        self._scratch = self._base / "scratch"
        self._verdict: Status | None = None
        self._output = bytearray()
        self._output_total = 0
        self._peak = 0
        self._facts: ExitFacts | None = None
        self._done = threading.Event()
        self._closed = False
        self._started = time.monotonic()
        self._frozen_since: float | None = None
        self._frozen_s = 0.0
        try:
            self._fill_scratch()
            self._spawn()
        except BaseException:
            shutil.rmtree(self._base, ignore_errors=True)
            raise

    # --- start ---------------------------------------------------------------------------------

    def _fill_scratch(self) -> None:
        self._scratch.mkdir()
        for name, source in self._job.inputs.items():
            target = self._scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=False)
            else:
                shutil.copyfile(source, target)
        if self._uid is not None:
            self._base.chmod(0o711)
            self._scratch.chmod(0o700)  # other jobs are other users
            for directory, names, files in os.walk(self._scratch):
                for path in [directory, *(str(Path(directory) / n) for n in [*names, *files])]:
                    os.chown(path, self._uid, self._uid)

    def _spawn(self) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read_end, write_end = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(self._spec(theirs.fileno()))],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            os.close(read_end)
            self.channel.close()
            raise
        finally:
            theirs.close()
            os.close(write_end)
        self._minder.watch(self._popen.pid, self._uid, self._base)
        for target in (self._watch, self._wait_for_end):
            threading.Thread(target=target, daemon=True).start()
        self._reader = threading.Thread(target=self._read_output, args=(read_end,), daemon=True)
        self._reader.start()

    def _spec(self, channel: int) -> dict[str, object]:
        job, limits = self._job, self._job.limits
        words = {"{scratch}": str(self._scratch), "{channel}": str(channel)}

        def fill(word: str) -> str:
            for mark, value in words.items():
                word = word.replace(mark, value)
            return word

        home = str(self._scratch)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "TMPDIR": home}
        environment |= {"LANG": "C.UTF-8"} | {k: fill(v) for k, v in job.environment.items()}
        memory = limits.memory_bytes
        return {
            "argv": [fill(word) for word in job.argv],
            "environment": environment,
            "scratch": home,
            "staging": str(self._base / "mounts"),
            "readable": [str(p) for p in [*interpreter_directories(), *job.readable]],
            "uid": self._uid,
            "cpus": sorted(job.cpus) if job.cpus else None,
            "cpu_s": None if limits.cpu_s is None else int(limits.cpu_s) + 1,
            "file_bytes": limits.file_bytes,
            # A backstop: reservations are not use, so the watchdog carries the real limit.
            "address_bytes": None if memory is None or job.device else 2 * memory + (16 << 30),
            "processes": limits.processes,
            # Ninja gives every compiler a group of its own.
            "hold_group": job.role != "build",
        }

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
        memory = self._job.limits.memory_bytes
        while not self._done.wait(_WATCH_INTERVAL_S):
            if self._thawed_s() > self._job.limits.wall_s:
                self._end("wall_timeout")
                return
            used = sum(_resident_bytes(pid) for pid in _stat_tree(self._popen.pid))
            self._peak = max(self._peak, used)
            if memory is not None and used > memory:
                self._end("oom")
                return

    def _wait_for_end(self) -> None:
        _, status, usage = os.wait4(self._popen.pid, 0)
        wall_s = time.monotonic() - self._started
        code = os.waitstatus_to_exitcode(status)
        self._popen.returncode = code  # Popen must not wait for it again.
        self._sweep()
        self._reader.join(timeout=2)
        self._facts = ExitFacts(
            status=self._verdict or self._status(code),
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_memory_bytes=max(self._peak, usage.ru_maxrss * 1024),
            output=self._output.decode(errors="replace"),
        )
        self._done.set()

    @staticmethod
    def _status(code: int) -> Status:
        if code == 0:
            return "ok"
        if code == LAUNCH_FAILED:
            return "sandbox_error"
        if code == -signal.SIGXCPU:
            return "cpu_timeout"
        if code == -signal.SIGXFSZ:
            return "disk_limit"
        return "signal" if code < 0 else "nonzero"

    def _end(self, verdict: Status) -> None:
        self._verdict = self._verdict or verdict
        self.kill()

    def _sweep(self) -> None:
        """Kill what is left: the group, and as root every process of the job's user."""
        self._signal_group(signal.SIGKILL)
        if self._uid is not None:
            kill_user(self._uid)

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._popen.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # Already gone.

    # --- the seam ------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        """The exit facts, or None if it still runs after timeout_s."""
        self._done.wait(timeout_s)
        return self._facts

    def kill(self) -> None:
        """End the whole process tree now."""
        if not self._done.is_set():
            self._sweep()

    def pause(self, paused: bool) -> None:
        """Freeze or thaw the process group. Frozen time does not count towards the wall-clock limit."""
        if self._done.is_set():
            return
        self._signal_group(signal.SIGSTOP if paused else signal.SIGCONT)
        if paused and self._frozen_since is None:
            self._frozen_since = time.monotonic()
        elif not paused and self._frozen_since is not None:
            self._frozen_s += time.monotonic() - self._frozen_since
            self._frozen_since = None

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        """Copy regular files that match out of the scratch directory."""
        return collect_files(self._scratch, allow, destination)

    def close(self) -> None:
        """Kill, release and remove. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        self._done.wait(10)
        self.channel.close()
        _remove(self._base)
        self._minder.forget(self._popen.pid)
