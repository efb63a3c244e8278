"""Tests that all backends share.

A backend's test module defines a fixture `backend` (and `python` for another interpreter) and a class that
inherits from Behaviours, or from Isolated.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from harness.errors import SandboxError
from sandboxes.job import Backend, ExitFacts, Job, Limits, RoleName
from sandboxes.pool import SandboxPool
from sandboxes.registry import run_self_test
from sandboxes.supervisor import RunningProcess
from tests.fakes.processes import processes_naming


def why_not(make: Callable[[], Backend]) -> str | None:
    """Why a backend cannot work here."""
    try:
        make().close()
    except SandboxError as error:
        return str(error)
    return None


class Starter:
    """Starts Python code in a sandbox."""

    def __init__(self, backend: Backend, python: str) -> None:
        self.backend = backend
        self.sandbox = SandboxPool(backend)
        self.python = python
        self._started: list[RunningProcess] = []

    def __call__(
        self, code: str, *words: str, argv: Sequence[str] | None = None, **changes: Any
    ) -> RunningProcess:
        """`words` become sys.argv[1:]; `changes` are fields of Job and of Limits, which are small."""
        small = {"wall_s": 30.0, "output_bytes": 1 << 16, "file_bytes": 1 << 20, "scratch_bytes": 64 << 20}
        limits = {field.name: changes.pop(field.name) for field in fields(Limits) if field.name in changes}
        job = Job(
            role=changes.pop("role", "run"),
            argv=argv or [self.python, "-I", "-S", "-c", code, *words],
            limits=Limits(**{**small, **limits}),
            **changes,
        )
        self._started.append(self.sandbox.start(job))
        return self._started[-1]

    def close(self) -> None:
        """End everything."""
        for process in self._started:
            process.close()


def end_of(process: RunningProcess) -> ExitFacts:
    """How it ended; the test fails if it never does."""
    facts = process.wait(90.0)
    assert facts is not None
    return facts


def content(process: RunningProcess, name: str) -> str | None:
    """What a file in its scratch directory holds now; None while it is not there."""
    with tempfile.TemporaryDirectory() as place:
        copies = process.collect([name], Path(place))
        return copies[0].read_text() if copies else None


def awaited(process: RunningProcess, name: str) -> str:
    """The content of a file as soon as it is there."""
    for _ in range(2000):
        found = content(process, name)
        if found is not None:
            return found
        assert process.wait(0.01) is None, process.wait(0)
    raise AssertionError(f"{name} did not appear")


def token() -> str:
    """A word by which a process is found from outside, whatever its pid is inside."""
    return f"liftbench-test-{secrets.token_hex(8)}"


def gone(word: str) -> bool:
    """Whether no process that holds `word` in its command runs any more, soon."""
    for _ in range(1000):
        if not processes_naming(word):
            return True
        time.sleep(0.01)
    return False


class Behaviours:
    """Holds for all backends."""

    def test_the_self_test_passes(self, start: Starter) -> None:
        """None of the promises that users are shown is broken."""
        report = run_self_test(start.sandbox, start.python)
        assert len(report.promises) == 17 and report.broken == ()

    def test_environment_and_privileges(self, start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
        """A few variables and the job's own, none of ours; no capabilities, and no way to new ones."""
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted")
        code = """
import os
print(sorted(os.environ), os.environ["HERE"], b"planted" in open("/proc/self/environ", "rb").read())
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
names = ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs")
print(*(int(status[name], 16) for name in names), os.getuid() == 0)
"""
        output = end_of(start(code, environment={"HERE": "{scratch}/x"})).output
        seen, privileges = output.replace("'LC_CTYPE', ", "").splitlines()
        assert seen.startswith("['HERE', 'HOME', 'LANG', 'PATH', 'TMPDIR'] /")
        assert seen.endswith("scratch/x False") and privileges == "0 0 0 0 1 False"

    def test_inputs_and_readable_directories_cannot_be_written(self, start: Starter, tmp_path: Path) -> None:
        """Inputs are copies; a readable directory is there under its own path, below closed ones too."""
        given = tmp_path / "given"
        given.mkdir(mode=0o755)
        (given / "file").write_text("mine")
        code = """
import sys
open("copy/file", "w").write("theirs")
print(open(sys.argv[1] + "/file").read())
try:
    open(sys.argv[1] + "/file", "w"); print("WRITTEN")
except OSError:
    print("refused")
"""
        process = start(code, str(given), readable=[given], inputs={"copy": given})
        output = end_of(process).output.split()
        assert output[0] == "mine"
        assert content(process, "copy/file") == "theirs"
        if os.geteuid() == 0:
            assert output[1] == "refused"
            assert (given / "file").read_text() == "mine"

    @pytest.mark.parametrize(
        ("code", "status", "exit_code", "number"),
        [
            ("pass", "ok", 0, None),
            ("raise SystemExit(97)", "nonzero", 97, None),
            ("import os; os.kill(os.getpid(), 11)", "signal", None, 11),
            ("import os; os.kill(os.getpid(), 9)", "signal", None, 9),
            ("import signal; signal.signal(25, signal.SIG_DFL); open('big', 'wb').write(bytes(4 << 20))",
             "disk_limit", None, 25),
        ],
        ids=["ok", "ninety-seven", "segv", "kill", "file size"],
    )  # fmt: skip
    def test_exit_facts(
        self, start: Starter, code: str, status: str, exit_code: int | None, number: int | None
    ) -> None:
        """Exit codes and signals come through as they were, and no exit code is a sandbox_error."""
        facts = end_of(start(code))
        assert (facts.status, facts.code, facts.signal) == (status, exit_code, number), facts.output

    def test_cpu_limit(self, start: Starter) -> None:
        """A job that burns more CPU time than allowed is stopped for that."""
        assert end_of(start("while True: pass", cpu_s=0.0)).status == "cpu_timeout"

    def test_wall_clock_kills_the_tree(self, start: Starter) -> None:
        """At its deadline a job ends with its children, even those that ignore every signal they can."""
        code = """
import os, signal, time
for number in set(range(1, 32)) - {9, 19}:
    signal.signal(number, signal.SIG_IGN)
os.fork()
time.sleep(600)
"""
        word = token()
        assert end_of(start(code, word, wall_s=1.0)).status == "wall_timeout"
        assert gone(word)

    def test_freezing_stops_children_and_the_wall_clock(self, start: Starter) -> None:
        """While frozen, neither a job nor its children run, nor does its clock; afterwards they go on."""
        code = """
import os, time
counter = f"counter{os.fork() > 0}"
while True:
    with open("new" + counter, "w") as file:
        file.write(str(time.monotonic()))
    os.rename("new" + counter, counter)
    time.sleep(0.001)
"""
        process = start(code, wall_s=4.0)
        files = [f"counter{parent}" for parent in (True, False)]
        for name in files:
            awaited(process, name)
        process.pause(True)
        before = [content(process, name) for name in files]
        assert process.wait(4.5) is None
        assert [content(process, name) for name in files] == before
        process.pause(False)
        for _ in range(500):
            if all(content(process, name) != old for name, old in zip(files, before, strict=True)):
                break
            time.sleep(0.01)
        else:
            pytest.fail("it does not go on")
        assert end_of(process).status == "wall_timeout"

    def test_a_system_call_in_progress_has_ended_when_all_stand(self, start: Starter) -> None:
        """A thread that was in the middle of a long read into shared memory writes nothing after the stop."""
        code = """
import mmap, os, socket, sys, threading
channel = socket.socket(fileno=int(sys.argv[1]))
_, [memory], _, _ = socket.recv_fds(channel, 9, 1)
size = 64 << 20
shared = mmap.mmap(memory, size)
sources = [os.open(name, os.O_RDWR | os.O_CREAT) for name in "ab"]
for byte, source in enumerate(sources):
    os.write(source, bytes([byte]) * size)
def read():
    while True:
        for source in sources:
            os.preadv(source, [shared], 0)
threading.Thread(target=read, daemon=True).start()
channel.send(b"done")
channel.recv(9)
"""
        process = start(code, "{channel}", file_bytes=1 << 30, scratch_bytes=256 << 20)
        memory = os.memfd_create("shared")
        try:
            os.ftruncate(memory, 64 << 20)
            socket.send_fds(process.channel, [b"take"], [memory])
            process.channel.settimeout(60)
            assert process.channel.recv(99) == b"done"
            for _ in range(10):
                process.pause(True)
                ends = [os.pread(memory, 1, 0), os.pread(memory, 1, (64 << 20) - 1)]
                assert process.wait(0.1) is None
                assert [os.pread(memory, 1, 0), os.pread(memory, 1, (64 << 20) - 1)] == ends
                process.pause(False)
                assert process.wait(0.005) is None
        finally:
            os.close(memory)

    def test_a_frozen_job_can_be_killed(self, start: Starter) -> None:
        """kill() ends what stands still, too."""
        word = token()
        process = start("import os, time; os.fork(); time.sleep(600)", word)
        process.pause(True)
        process.kill()
        assert (end_of(process).status, end_of(process).signal) == ("signal", 9)
        assert gone(word)

    def test_memory_limit(self, start: Starter) -> None:
        """A job that uses more memory than allowed, its children included, ends as out of memory."""
        code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        hoard = bytearray(96 << 20)
        time.sleep(600)
os.wait()
raise SystemExit(1)
"""
        facts = end_of(start(code, memory_bytes=192 << 20, scratch_bytes=16 << 20))
        assert facts.status == "oom"
        assert facts.peak_memory_bytes is not None
        assert facts.peak_memory_bytes > 150 << 20

    def test_output_is_capped(self, start: Starter) -> None:
        """Of a talkative job the first bytes are kept; one that never stops is killed for it."""
        facts = end_of(start("print('x' * 5000)", output_bytes=1000))
        assert (facts.status, len(facts.output)) == ("ok", 1000)
        facts = end_of(start("while True: print('x' * 5000)", output_bytes=1000))
        assert (facts.status, len(facts.output)) == ("output_limit", 1000)

    def test_cores(self, start: Starter) -> None:
        """A job may be kept on some cores."""
        core = max(os.sched_getaffinity(0))
        code = "import os; print(*os.sched_getaffinity(0))"
        assert end_of(start(code, cpus=frozenset({core}))).output.split() == [str(core)]

    def test_the_channel_carries_messages_and_descriptors(self, start: Starter) -> None:
        """Messages go both ways with their boundaries, a descriptor is the same memory, the end closes it."""
        code = """
import os, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
data, [memory], _, _ = socket.recv_fds(channel, 9, 1)
os.pwrite(memory, b"written", 0)
channel.send(data + b"!")
channel.send(b"2")
"""
        process = start(code, "{channel}")
        memory = os.memfd_create("shared")
        try:
            socket.send_fds(process.channel, [b"take"], [memory])
            process.channel.settimeout(20)
            assert [process.channel.recv(99) for _ in range(3)] == [b"take!", b"2", b""]
            assert os.pread(memory, 99, 0) == b"written"
        finally:
            os.close(memory)

    def test_a_preloaded_script_runs_as_main(self, start: Starter, tmp_path: Path) -> None:
        """As in a fresh interpreter; a traceback is its output, and its exit code that of Python."""
        script = tmp_path / "script.py"
        script.write_text(
            "import sys\nprint('json' in sys.modules, __name__, __file__ == sys.argv[0], sys.argv[1:],"
            " 'spec' in globals(), sys.modules['__main__'].__dict__ is globals(), flush=True)\n"
            "raise OSError('mine')\n"
        )
        argv = [start.python, "-I", "-S", "{scratch}/script.py", "word"]
        facts = end_of(start("", argv=argv, inputs={"script.py": script}, preload=("json",)))
        assert (facts.status, facts.code) == ("nonzero", 1)
        assert facts.output.startswith("True __main__ True ['word'] False True\n")
        assert facts.output.rstrip().endswith("OSError: mine")

    def test_failures_before_the_job_are_ours(self, tmp_path: Path, temporary: Path, start: Starter) -> None:
        """A missing program, input or preloaded module raises SandboxError, and nothing is left."""
        with pytest.raises(SandboxError, match=r"No such file.*/no/such/program"):
            start("", argv=["/no/such/program"])
        with pytest.raises(SandboxError):
            start("pass", inputs={"x": tmp_path / "missing"})
        with pytest.raises(SandboxError, match=r"ModuleNotFoundError.*no_such_module"):
            start("pass", preload=("no_such_module",))
        assert list(temporary.iterdir()) == []

    def test_files_are_collected(self, start: Starter, tmp_path: Path) -> None:
        """After the end, files that were asked for come out of the scratch directory, and no links."""
        code = """
import os
os.mkdir("inner")
for name in ("wanted.txt", "other", "inner/more.txt"):
    open(name, "w").write(name)
os.symlink("/etc/passwd", "link.txt")
"""
        process = start(code)
        assert end_of(process).status == "ok"
        copies = process.collect(["*.txt"], tmp_path)
        assert [path.read_text() for path in copies] == ["inner/more.txt", "wanted.txt"]

    def test_close_removes_everything(self, temporary: Path, start: Starter) -> None:
        """close() kills the job and removes its folder, of any depth; it may be called twice."""
        word = token()
        code = """
import os, time
scratch = os.open(".", os.O_RDONLY)
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
os.close(os.open("left", os.O_CREAT, dir_fd=scratch))
time.sleep(60)
"""
        process = start(code, word)
        while not os.access("left", os.F_OK, dir_fd=process._scratch):
            assert process.wait(0.01) is None, process.wait(0)
        process.close()
        process.close()
        assert gone(word)
        deadline = time.monotonic() + 60
        while list(temporary.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)  # large folders are removed in the background
        assert list(temporary.iterdir()) == []


class Isolated(Behaviours):
    """Holds for backends that isolate with namespaces: bubblewrap and docker."""

    @pytest.mark.parametrize(("size", "files"), [(1 << 20, 50_000), (1, 500)], ids=["bytes", "files"])
    def test_scratch_is_limited(self, start: Starter, size: int, files: int) -> None:
        """Neither many files nor large ones fill more than the scratch directory may hold."""
        code = f"""
import time
for number in range(1000):
    with open(f"file{{number}}", "wb") as file:
        file.write(bytes({size}))
time.sleep(60)  # not every kernel limits the number of files: the watchdog does
"""
        facts = end_of(start(code, scratch_bytes=8 << 20, scratch_files=files, file_bytes=2 << 20))
        assert facts.status == "disk_limit", facts.output


class HostFiles:
    """Holds for backends that show a list of the host's files: bubblewrap and landlock."""

    def test_no_kernel_thread_works_for_a_job(self, start: Starter) -> None:
        """Pressure triggers, which any user may set, cannot be opened."""
        output = end_of(start("open('/proc/pressure/cpu', 'r+')")).output
        assert output.rstrip().endswith("'/proc/pressure/cpu'"), output

    @pytest.mark.parametrize(("role", "found"), [("build", True), ("run", False), ("run_jit", True)])
    def test_compilers_are_there_for_builds_only(self, start: Starter, role: RoleName, found: bool) -> None:
        """A running project can read no compiler, assembler or linker."""
        compilers = [shutil.which(name) for name in ("g++", "as", "ld")]
        wanted = [str(Path(path).resolve()) for path in compilers if path is not None]
        code = """
import os, sys
def readable(path):
    try:
        return os.access(path, os.X_OK) and bool(open(path, "rb").read(1))
    except OSError:
        return False
print(*(int(readable(path)) for path in sys.argv[1:]))
"""
        assert end_of(start(code, *wanted, role=role)).output.split() == [str(int(found))] * len(wanted)
