"""The Docker sandbox, with real containers."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes.docker.backend import PYTHON, DockerBackend
from sandboxes.docker.engine import DockerEngine, Image
from sandboxes.seccomp import profile
from tests.sandboxes.attempts import FILTERED, calls, check
from tests.sandboxes.behaviours import Isolated, Starter, awaited, end_of
from tests.sandboxes.docker.conftest import TINY
from tests.sandboxes.docker.own_engine import OwnEngine
from tests.sandboxes.docker.tiny_image import make_tiny_image

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[3]
FLOOD_BYTES = 32 << 20


class TestDocker(Isolated):
    """What all isolating backends do."""


@pytest.fixture
def asked(engine: DockerEngine, start: Starter) -> Iterator[dict[str, Any]]:
    """What the engine says of a container of a job that brings words of its own."""
    process = start("import time; time.sleep(60)", "argued", environment={"BROUGHT": "along"}, processes=33)
    yield engine.api.inspect_container(process._tree.name)


def test_restrictions_as_the_engine_has_them(asked: dict[str, Any]) -> None:
    """No capability, no new ones, our own system call filter, nothing shared, nothing writable."""
    host = asked["HostConfig"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    assert host["SecurityOpt"][0] == "no-new-privileges"
    assert json.loads(host["SecurityOpt"][1].removeprefix("seccomp=")) == profile()
    assert host["ReadonlyRootfs"] and host["Init"]
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"], host["UTSMode"]) == (
        "none",
        "private",
        "",
        "",
    )
    assert host["PidsLimit"] == 33 and "/proc/pressure" in host["ReadonlyPaths"]
    assert not host["Devices"] and not host["DeviceRequests"] and not host["PortBindings"]
    assert all(not mount["RW"] for mount in asked["Mounts"])
    # Neither a job's variables nor its argv, which never reach the engine, are the container's.
    assert asked["Config"]["Env"] in (None, [])
    assert asked["Config"]["Entrypoint"] == [PYTHON, "-I", "-S", "/liftbench/inside.py"]
    assert "argued" not in json.dumps(asked)


def test_the_engine_refuses_what_our_compiler_does(start: Starter) -> None:
    """Of about 100 system calls the same are refused, and the same allowed."""
    refused, allowed = calls("/scratch")
    argv = [PYTHON, "-I", "-S", "{scratch}/filtered.py", "", "call", json.dumps([*refused, *allowed])]
    facts = end_of(start("", role="build", argv=argv, inputs={"filtered.py": FILTERED}))
    check(json.loads(facts.output), "/scratch", errno.EPERM, errno.ENOSYS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give every job a user")
def test_every_container_has_a_user_of_its_own(start: Starter) -> None:
    """Two jobs are two users, without other groups."""
    code = "import os; print(*os.getresuid(), *os.getresgid(), os.getgroups(), os.uname().nodename)"
    outputs = [end_of(start(code)).output.split() for _ in range(2)]
    for words in outputs:
        assert int(words[0]) >= 20_000
        assert words == [words[0]] * 6 + [f"[{words[0]}]", "liftbench"]
    assert outputs[0] != outputs[1]


def test_scratch_does_not_count_as_memory(start: Starter) -> None:
    """A full scratch directory leaves a job the memory that it was promised."""
    code = """
open("full", "wb").write(bytes(60 << 20))
hoard = bytearray(90 << 20)
print("both")
"""
    limits = {"memory_bytes": 128 << 20, "scratch_bytes": 64 << 20, "file_bytes": 64 << 20}
    assert end_of(start(code, **limits)).output == "both\n"


def test_the_engines_log_is_bounded(engine: DockerEngine, start: Starter) -> None:
    """A job that writes to the container's own output fills no disk."""
    code = f"""
with open("/proc/1/fd/1", "wb", buffering=0) as log:
    for _ in range({FLOOD_BYTES >> 16}):
        log.write(b"x" * 65535 + b"\\n")
open("done", "w").close()
import time; time.sleep(60)
"""
    process = start(code)
    try:
        awaited(process, "done")
    except AssertionError:
        assert "PermissionError" in end_of(process).output  # closed altogether
        return
    if os.geteuid() == 0:
        log = Path(engine.api.inspect_container(process._tree.name)["LogPath"])
        assert sum(file.stat().st_size for file in log.parent.glob(f"{log.name}*")) < 4 << 20


def test_facts_name_engine_and_images(backend: DockerBackend, image: Image) -> None:
    """The record says which engine, which image, and which layers."""
    facts = backend.facts()
    assert facts["network"] == "none"
    assert facts["run_image_id"] == image.id and facts["build_layers"].startswith("sha256:")
    assert facts["engine"].startswith("docker ") and "seccomp" in facts["engine_security"]


PLAIN_USER = """
import json, os, sys
sys.path[:0] = sys.argv[2:]
from sandboxes.pool import SandboxPool
from sandboxes.docker.backend import PYTHON, DockerBackend
from sandboxes.docker.engine import DockerEngine, Image
from sandboxes.job import Job, Limits
engine = DockerEngine.connect(os.environ)
image = Image(engine.client, sys.argv[1])
sandbox = SandboxPool(DockerBackend(engine, {"run": image, "build": image}))
def start(code, **limits):
    limits = Limits(**{"wall_s": 30.0, "scratch_bytes": 16 << 20, **limits})
    return sandbox.start(Job(role="run", argv=[PYTHON, "-I", "-S", "-c", code], limits=limits))
found = {}
process = start("import os; print(os.getuid())")
found["uid"] = process.wait().output.strip()
process.close()
process = start("import time; time.sleep(60)")
process.pause(True); process.pause(False); process.pause(True)
process.kill()
found["killed while paused"] = process.wait().signal
process.close()
process = start("bytearray(200 << 20)", memory_bytes=64 << 20)
found["memory"] = process.wait().status
process.close()
found["left"] = [e["Names"] for e in engine.api.containers(all=True)]
print(json.dumps(found))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="starts an engine, and becomes another user")
def test_as_a_plain_user() -> None:
    """Without root jobs run as the harness's own user, which may stop and kill them."""
    python = shutil.which("python3", path="/usr/bin")
    packages = [p for p in sys.path if p.endswith("site-packages")]
    own = OwnEngine()
    try:
        make_tiny_image(own.engine.client, TINY)
        (own.place / "socket").chmod(0o666)
        as_user = ["setpriv", "--reuid=20123", "--regid=20123", "--clear-groups"]
        command = [str(python), "-B", "-c", PLAIN_USER, TINY, str(ROOT), *packages]
        environment = {"PATH": "/usr/bin:/bin", **own.environment}
        code = "import sys; sys.path[:0] = sys.argv[1:]; import docker"
        tried = subprocess.run(
            [*as_user, str(python), "-c", code, *packages],
            cwd="/", env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if tried.returncode != 0:
            pytest.skip(f"another user has no Python with the docker SDK here: {tried.stderr[-200:]}")
        done = subprocess.run(
            [*as_user, *command], cwd="/", env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "uid": "20123",
            "killed while paused": 9,
            "memory": "oom",
            "left": [],
        }
    finally:
        own.remove()
