"""The local sandbox, with real processes: what it hides, what it kills, and what it says of the end."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.job import ExitFacts, Job, Limits, RoleName
from sandboxes.local import LocalBackend
from sandboxes.running import CagedSandbox, RunningProcess

ROOT = os.geteuid() == 0
Start = Callable[..., RunningProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python code in a local sandbox; ends everything after the test."""
    sandbox, started = CagedSandbox(LocalBackend()), []

    def run(
        code: str,
        *,
        role: RoleName = "run",
        wall_s: float = 20.0,
        memory_bytes: int | None = None,
        cpu_s: float | None = None,
        output_bytes: int = 1 << 16,
        file_bytes: int = 1 << 20,
        argv: list[str] | None = None,
        inputs: dict[str, Path] | None = None,
        environment: dict[str, str] | None = None,
        preload: tuple[str, ...] = (),
    ) -> RunningProcess:
        job = Job(
            role=role,
            argv=argv or [sys.executable, "-I", "-S", "-c", code],
            limits=Limits(
                wall_s=wall_s,
                memory_bytes=memory_bytes,
                cpu_s=cpu_s,
                output_bytes=output_bytes,
                file_bytes=file_bytes,
            ),
            inputs=inputs or {},
            environment=environment or {},
            preload=preload,
        )
        started.append(sandbox.start(job))
        return started[-1]

    yield run
    for process in started:
        process.close()


def end_of(process: RunningProcess) -> ExitFacts:
    """How it ended; the test fails if it never does."""
    facts = process.wait(60.0)
    assert facts is not None
    return facts


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Whether a process that was killed disappears."""
    for _ in range(500):
        if not alive(pid):
            return True
        time.sleep(0.01)
    return False


# --- what it hides -------------------------------------------------------------------------------


def test_secrets_of_the_launcher_are_not_visible(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in our environment is in no environment that a job can read through /proc."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted")
    code = """
import glob, os
print(sorted(os.environ))
for path in ["/proc/self/environ", f"/proc/{os.getppid()}/environ", *glob.glob("/proc/[0-9]*/environ")]:
    try:
        if b"sk-ant-" + b"planted" in open(path, "rb").read():
            print("LEAK", path)
    except OSError:
        pass
"""
    output = end_of(start(code)).output
    if ROOT:
        assert "LEAK" not in output
    assert "LEAK /proc/self" not in output
    assert "['HOME', 'LANG', 'PATH', 'TMPDIR']" in output.replace("'LC_CTYPE', ", "")


def test_own_environment_is_added(start: Start) -> None:
    """A job's own variables reach it, with {scratch} filled in."""
    output = end_of(start("import os; print(os.environ['HERE'])", environment={"HERE": "{scratch}/x"})).output
    assert output.strip().endswith("scratch/x")


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_every_process_has_a_user_of_its_own(start: Start) -> None:
    """As root, two jobs run as two unprivileged users without groups or capabilities."""
    code = """
import os
caps = [l for l in open("/proc/self/status") if l.startswith(("CapEff", "CapPrm"))]
print(os.getresuid(), os.getresgid(), os.getgroups(), all(int(c.split()[1], 16) == 0 for c in caps))
"""
    first, second = (end_of(start(code)).output for _ in range(2))
    assert first != second
    for output in (first, second):
        uid = int(output.split(",")[0].strip("("))
        assert uid >= 20_000
        assert output.strip() == f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) [] True"


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_another_job_cannot_be_signalled_or_read(start: Start) -> None:
    """As root, a job can neither signal another job or the judge, nor read their memory or files."""
    other = start("import time; time.sleep(60)")
    code = f"""
import os
for pid in ({other._cage._popen.pid}, {os.getpid()}):
    scratch = {str(other._cage._start.folder / "scratch")!r}
    for act in (lambda: os.kill(pid, 0), lambda: open(f"/proc/{{pid}}/mem"), lambda: os.listdir(scratch)):
        try:
            act(); print("ALLOWED")
        except OSError as error:
            print(error.errno)
"""
    output = end_of(start(code)).output
    assert "ALLOWED" not in output
    assert alive(other._cage._popen.pid)


def test_inputs_are_copies(start: Start, tmp_path: Path) -> None:
    """What a job writes to its inputs does not reach the originals."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given/file").write_text("mine")
    facts = end_of(start("open('given/file', 'w').write('theirs')", inputs={"given": tmp_path / "given"}))
    assert facts.status == "ok", facts.output
    assert (tmp_path / "given/file").read_text() == "mine"


def test_only_the_channel_is_inherited(start: Start) -> None:
    """Beside standard input and output a job has one descriptor: its end of the channel."""
    with tempfile.TemporaryFile() as ours:
        os.set_inheritable(ours.fileno(), True)
        output = end_of(
            start(
                "",
                argv=[
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    "import os,sys; print([n for n in range(3, 99) if os.path.lexists(f'/proc/self/fd/{n}')"
                    " and 'proc' not in os.readlink(f'/proc/self/fd/{n}')], sys.argv[1])",
                    "{channel}",
                ],
            )
        ).output
    listed, channel = output.rsplit(maxsplit=1)
    assert listed == f"[{channel}]"


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "exit_code", "number"),
    [
        ("pass", "ok", 0, None),
        ("raise SystemExit(3)", "nonzero", 3, None),
        ("import os; os.kill(os.getpid(), 11)", "signal", None, 11),
        ("import os; os.kill(os.getpid(), 9)", "signal", None, 9),
        ("f = open('big', 'wb'); import signal; signal.signal(25, signal.SIG_DFL); f.write(bytes(4 << 20))",
         "disk_limit", None, 25),
    ],
    ids=["ok", "nonzero", "segv", "kill", "file size"],
)  # fmt: skip
def test_exit_facts(start: Start, code: str, status: str, exit_code: int | None, number: int | None) -> None:
    """Exit codes and signals come through as they were."""
    facts = end_of(start(code))
    assert (facts.status, facts.code, facts.signal) == (status, exit_code, number), facts.output


def test_cpu_limit(start: Start) -> None:
    """A job that burns more CPU time than allowed is stopped for that."""
    assert end_of(start("while True: pass", cpu_s=0.0)).status == "cpu_timeout"


def test_wall_clock_kills_the_group(start: Start) -> None:
    """At its deadline a job ends with its children, even those that ignore every signal they can."""
    code = """
import os, signal, time
for number in set(range(1, 32)) - {9, 19}:
    signal.signal(number, signal.SIG_IGN)
print(os.fork(), flush=True)
time.sleep(600)
"""
    facts = end_of(start(code, wall_s=1.0))
    assert facts.status == "wall_timeout"
    child = max(int(word) for word in facts.output.split())
    assert gone(child)


@pytest.mark.parametrize("role", ["run", "build"])
@pytest.mark.skipif(not ROOT, reason="without root a builder's daemon survives (see the module docstring)")
def test_daemon_does_not_survive(start: Start, role: RoleName) -> None:
    """A child that forked twice and asked for a session of its own dies with its job."""
    code = """
import os, time
if os.fork() == 0:
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork() == 0:
        open("pid", "w").write(str(os.getpid()))
        os.rename("pid", "ready")
        time.sleep(600)
    os._exit(0)
while not os.path.exists("ready"):
    time.sleep(0.01)
print(open("ready").read())
"""
    facts = end_of(start(code, role=role))
    assert facts.status == "ok", facts.output
    assert gone(int(facts.output))


def test_running_job_cannot_leave_its_group(start: Start) -> None:
    """No job but a build may have a session, a process group or cores that it was not given."""
    code = """
import os
for act in (os.setsid, lambda: os.setpgid(0, 0), lambda: os.sched_setaffinity(0, {0})):
    try:
        act(); print("ALLOWED", flush=True)
    except PermissionError:
        print("refused", flush=True)
if os.fork() == 0:
    try:
        os.setsid(); print("ALLOWED")
    except PermissionError:
        print("refused")
    raise SystemExit
os.wait()
"""
    assert end_of(start(code)).output.split() == ["refused"] * 4


def test_freezing_stops_children_and_the_wall_clock(start: Start) -> None:
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
    process = start(code, wall_s=2.0)
    files = [(process._cage._start.folder / "scratch") / f"counter{parent}" for parent in (True, False)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    process.pause(True)
    time.sleep(0.1)
    before = [file.read_text() for file in files]
    assert process.wait(2.5) is None
    assert [file.read_text() for file in files] == before
    process.pause(False)
    for _ in range(500):
        if all(file.read_text() != old for file, old in zip(files, before, strict=True)):
            break
        time.sleep(0.01)
    else:
        pytest.fail("it does not go on")
    assert end_of(process).status == "wall_timeout"


def test_memory_watchdog(start: Start) -> None:
    """A job that uses more memory than allowed, its children included, ends as out of memory."""
    code = """
import os, time
os.fork(); os.fork()
hoard = bytearray(96 << 20)
time.sleep(60)
"""
    facts = end_of(start(code, memory_bytes=256 << 20))
    assert facts.status == "oom"
    assert facts.peak_memory_bytes is not None
    assert facts.peak_memory_bytes > 256 << 20


def test_output_is_capped(start: Start) -> None:
    """Of a talkative job the first bytes are kept; one that never stops is killed for it."""
    facts = end_of(start("print('x' * 5000)", output_bytes=1000))
    assert (facts.status, len(facts.output)) == ("ok", 1000)
    facts = end_of(start("while True: print('x' * 5000)", output_bytes=1000))
    assert (facts.status, len(facts.output)) == ("output_limit", 1000)


def test_wait_returns_none_while_it_runs(start: Start) -> None:
    """wait() with a timeout says None for a living job, and the facts once it was killed."""
    process = start("import time; time.sleep(60)")
    assert process.wait(0.05) is None
    process.kill()
    assert (end_of(process).status, end_of(process).signal) == ("signal", 9)


def test_channel_connects(start: Start) -> None:
    """Messages go both ways over the channel, with their boundaries; at the end of the job it is closed."""
    code = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
channel.send(channel.recv(99) + b"!")
channel.send(b"2")
"""
    process = start("", argv=[sys.executable, "-I", "-S", "-c", code, "{channel}"])
    process.channel.settimeout(20)
    process.channel.send(b"hello")
    assert [process.channel.recv(99) for _ in range(3)] == [b"hello!", b"2", b""]


# --- a warm start -------------------------------------------------------------------------------


def test_a_preloaded_script_runs_as_main(start: Start, tmp_path: Path) -> None:
    """With `preload` the interpreter that imported the modules runs the script, as if it were fresh."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nprint('json' in sys.modules, __name__, __file__ == sys.argv[0], sys.argv[1:],"
        " 'spec' in globals(), sys.modules['__main__'].__dict__ is globals())\nraise SystemExit(7)\n"
    )
    argv = [sys.executable, "-I", "-S", "{scratch}/script.py", "word"]
    facts = end_of(start("", argv=argv, inputs={"script.py": script}, preload=("json",)))
    assert (facts.code, facts.output) == (7, "True __main__ True ['word'] False True\n")


def test_a_preloaded_script_that_raises(start: Start, tmp_path: Path) -> None:
    """Its traceback is its output and its exit code that of Python; nothing of it looks like a failed start."""
    (tmp_path / "script.py").write_text("raise OSError('mine')\n")
    argv = [sys.executable, "-I", "-S", "{scratch}/script.py"]
    facts = end_of(start("", argv=argv, inputs={"script.py": tmp_path / "script.py"}, preload=("json",)))
    assert (facts.status, facts.code) == ("nonzero", 1)
    assert facts.output.rstrip().endswith("OSError: mine")


def test_a_module_that_is_missing_is_ours(start: Start) -> None:
    """A preload that fails raises SandboxError with the reason."""
    with pytest.raises(SandboxError, match="ModuleNotFoundError.*no_such_module"):
        start("pass", preload=("no_such_module",))


# --- what is left --------------------------------------------------------------------------------


def test_scratch_is_removed(start: Start) -> None:
    """close() kills the job and removes its scratch directory; it may be called twice."""
    process = start("open('left', 'w').close(); import time; time.sleep(60)")
    base = process._cage._start.folder
    assert base.is_dir()
    process.close()
    process.close()
    assert not base.exists()
    assert gone(process._cage._popen.pid)


def test_deep_scratch_is_removed(start: Start) -> None:
    """Directories nested deeper than Python's stack do not keep a job from being closed and removed."""
    process = start("import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')")
    assert end_of(process).status == "ok"
    process.close()
    assert not process._cage._start.folder.exists()


def test_files_are_collected(start: Start, tmp_path: Path) -> None:
    """After the end, files that were asked for come out of the scratch directory."""
    process = start("open('wanted.txt', 'w').write('yes'); open('other', 'w').close()")
    end_of(process)
    copies = process.collect(["*.txt"], tmp_path)
    assert [(path.name, path.read_text()) for path in copies] == [("wanted.txt", "yes")]


def test_launcher_failure_is_ours(start: Start) -> None:
    """A program that cannot be executed is the sandbox's failure, not the job's."""
    with pytest.raises(SandboxError, match="No such file.*/no/such/program"):
        start("", argv=["/no/such/program"])


@pytest.mark.parametrize("code", [1, 97])
def test_no_exit_code_is_a_sandbox_error(start: Start, code: int) -> None:
    """A job cannot pretend that the sandbox failed: such trials are repeated and never scored."""
    assert end_of(start(f"raise SystemExit({code})")).status == "nonzero"


def test_missing_input_is_a_sandbox_error(start: Start, tmp_path: Path) -> None:
    """An input that is not there raises SandboxError, and no scratch directory stays."""
    before = set(Path(tempfile.gettempdir()).glob("liftbench-*"))
    with pytest.raises(SandboxError):
        start("pass", inputs={"x": tmp_path / "missing"})
    assert set(Path(tempfile.gettempdir()).glob("liftbench-*")) - before == set()


def test_facts_say_what_is_not_protected() -> None:
    """The record says that the network is open and files are not isolated."""
    facts = CagedSandbox(LocalBackend()).facts()
    assert (facts["network"], facts["files"]) == ("open", "not isolated")
