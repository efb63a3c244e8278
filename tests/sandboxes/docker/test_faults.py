"""What goes wrong with containers is ours: it is said, never scored, and leaves nothing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.docker.backend import PYTHON, DockerBackend
from sandboxes.docker.engine import DockerEngine, Image
from tests.fakes.processes import children, processes_naming
from tests.sandboxes.behaviours import Starter, awaited, end_of, gone, token
from tests.sandboxes.docker.conftest import TINY
from tests.sandboxes.docker.own_engine import OwnEngine
from tests.sandboxes.docker.tiny_image import make_tiny_image

# The SDK leaves a socket to the garbage collector when it cannot connect.
_LEFT = r"ignore:unclosed <socket.socket fd=\d+, family=1, type=1, proto=0>:ResourceWarning"
pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings(_LEFT)]

ROOT = Path(__file__).resolve().parents[3]
SLEEP = "open('started', 'w').close(); import time; time.sleep(600)"


@pytest.fixture
def own() -> Iterator[OwnEngine]:
    """An engine of the test's own."""
    made = OwnEngine()
    yield made
    made.remove()
    gc.collect()  # while the filter above holds


def backend_on(engine: DockerEngine) -> DockerBackend:
    """With the tiny image, which is made there first."""
    make_tiny_image(engine.client, TINY)
    image = Image(engine.client, TINY)
    return DockerBackend(engine, {"build": image, "run": image, "run_jit": image})


def containers_of(engine: DockerEngine, pid: int) -> list[str]:
    """Of the harness with that process id."""
    return [entry["Id"] for entry in engine.api.containers(all=True, filters={"name": f"liftbench-{pid}-"})]


@pytest.mark.parametrize("end", [OwnEngine.kill, OwnEngine.stop], ids=["dies", "is stopped"])
def test_the_engine_ends(own: OwnEngine, end: Callable[[OwnEngine], None]) -> None:
    """It is a sandbox_error with advice, also where the engine ends its containers by signals."""
    word = token()
    with closing(Starter(backend_on(own.engine), PYTHON)) as start:
        process = start(SLEEP, word)
        awaited(process, "started")
        end(own)
        facts = end_of(process)
        assert (facts.status, facts.code, facts.signal) == ("sandbox_error", None, None), facts
        assert gone(word)
        if end is OwnEngine.kill:
            assert "engine" in facts.output and "start it again" in facts.output
            with pytest.raises(SandboxError, match="start it again"):
                start("pass")


@pytest.mark.slow
def test_the_engine_hangs(own: OwnEngine) -> None:
    """A job can be killed without an engine that answers, and its end is told nevertheless."""
    word = token()
    with closing(Starter(backend_on(own.engine), PYTHON)) as start:
        process = start(SLEEP, word, wall_s=1.0)
        awaited(process, "started")
        own.hang()
        try:
            assert gone(word)
            assert end_of(process).status == "wall_timeout"
            process.close()
        finally:
            own.hang(False)


def test_the_engines_disk_is_full() -> None:
    """The message says so, and what makes room; a job that runs goes on, and the next one starts again."""
    own = OwnEngine(data_bytes=256 << 20)
    code = "import socket, sys; print(socket.socket(fileno=int(sys.argv[1])).recv(9))"
    try:
        with closing(Starter(backend_on(own.engine), PYTHON)) as start:
            running = start(code, "{channel}")
            with (
                (own.data / "ballast").open("wb", buffering=0) as ballast,
                pytest.raises(OSError, match="space"),
            ):
                while True:
                    ballast.write(bytes(1 << 16))
            with pytest.raises(SandboxError, match=r"(?i)no space left.*docker system prune"):
                start("pass")
            running.channel.send(b"go")
            assert end_of(running).output == "b'go'\n"
            (own.data / "ballast").unlink()
            assert end_of(start("print('again')")).output == "again\n"
    finally:
        own.remove()


def test_a_container_is_removed_by_somebody(engine: DockerEngine, start: Starter) -> None:
    """`docker rm -f` while a job runs is no signal of the job's: the trial is repeated."""
    process = start(SLEEP)
    awaited(process, "started")
    engine.api.remove_container(process._tree.name, force=True)
    facts = end_of(process)
    assert (facts.status, facts.code, facts.signal) == ("sandbox_error", None, None)
    assert "removed" in facts.output


HARNESS = """
import os, sys, time
from sandboxes.pool import SandboxPool
from sandboxes.docker.backend import PYTHON, DockerBackend
from sandboxes.docker.engine import DockerEngine
from sandboxes.docker.engine import Image
from sandboxes.job import Job, Limits
engine = DockerEngine.connect(os.environ)
backend = DockerBackend(engine, {"run": Image(engine.client, sys.argv[1])})
argv = [PYTHON, "-I", "-S", "-c", "import time; time.sleep(300)", sys.argv[2]]
process = SandboxPool(backend).start(Job(role="run", argv=argv, limits=Limits(wall_s=250.0)))
process.pause(sys.argv[3] == "frozen")
print(process._tree._control.folder, flush=True)
time.sleep(300)
"""


def harness(how: str) -> tuple[subprocess.Popen[str], str, Path]:
    """Another process that runs a job; the word by which that is found; and its socket's folder."""
    word = token()
    command = [sys.executable, "-c", HARNESS, TINY, word, how]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as stdout:
        folder = Path(stdout.readline().strip())
    assert folder.is_dir() and processes_naming(word)
    return process, word, folder


@pytest.mark.parametrize("how", ["running", "frozen"])
def test_nothing_outlives_the_harness(engine: DockerEngine, image: Image, how: str) -> None:
    """After kill -9 the job, its container and its folder are gone without a next start."""
    process, word, folder = harness(how)
    process.kill()
    process.wait()
    assert gone(word)
    for _ in range(600):
        if not folder.exists() and not containers_of(engine, process.pid):
            return
        time.sleep(0.05)
    pytest.fail("a container or its folder is left")


def test_the_next_start_removes_what_is_left(engine: DockerEngine, image: Image) -> None:
    """Where the reaper was killed too, the next backend cleans up."""
    process, word, folder = harness("running")
    for pid in children("reaper.py", process.pid):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    assert len(containers_of(engine, process.pid)) == 1
    DockerBackend(engine, {"run": image})
    assert containers_of(engine, process.pid) == [] and gone(word)
    folder.rmdir()
