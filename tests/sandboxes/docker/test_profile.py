"""Our seccomp profile and control group readings, with a container engine's own hands."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxes.cgroups import Cgroup
from sandboxes.docker.backend import PYTHON
from sandboxes.docker.engine import DockerEngine
from sandboxes.docker.image import Image
from sandboxes.seccomp import numbers, profile
from tests.sandboxes.attempts import FILTERED, HERE, calls, check

pytestmark = pytest.mark.docker


@pytest.fixture
def container(engine: DockerEngine, image: Image) -> Iterator[Any]:
    """Starts containers of the tiny image, and removes them after the test."""
    made = []

    def start(*words: str, profile: dict[str, Any] | None = None) -> Any:
        security = ["no-new-privileges"]
        security += [f"seccomp={json.dumps(profile)}"] if profile else []
        made.append(
            engine.client.containers.run(
                image.id,
                detach=True,
                name=f"liftbench-test-{secrets.token_hex(6)}",
                entrypoint=[PYTHON, "-I", "-S"],
                command=list(words),
                user="54321:54321",
                network_mode="none",
                mem_limit="128m",
                security_opt=security,
                tmpfs={"/scratch": "mode=1777"},
                volumes={str(FILTERED): {"bind": "/filtered.py", "mode": "ro"}},
            )
        )
        return made[-1]

    yield start
    for container in made:
        container.remove(force=True)


TRACED = {**profile(), "defaultAction": "SCMP_ACT_TRACE"}
"""The profile, but what it refuses answers ENOSYS, as nobody traces: old engines know no other mark."""


@pytest.mark.parametrize(
    ("given", "refusals"), [(TRACED, {38}), (profile(), {1, 38})], ids=["marked", "ours"]
)
def test_the_engine_refuses_what_our_compiler_does(
    container: Any, given: dict[str, Any], refusals: set[int]
) -> None:
    """The same calls are refused, by the engine's filter and by nothing else, and the same are allowed."""
    refused, allowed = calls("/scratch")
    started = container("/filtered.py", "", "call", json.dumps([*refused, *allowed]), profile=given)
    assert started.wait(timeout=120)["StatusCode"] == 0, started.logs().decode()
    check(json.loads(started.logs()), "/scratch", *refusals)


def test_the_engine_compares_arguments_as_our_compiler_does(container: Any) -> None:
    """Terminal requests, families and flags with the upper half set: where readings could differ."""
    number = numbers(HERE)
    asked = [
        ["refused", number["ioctl"], 0, upper | request]
        for request in (0x5412, 0x541C, 0x5423)
        for upper in (0, 1 << 32, 0xFFFFFFFF << 32)
    ]
    asked += [["allowed", number["ioctl"], 99, 0x5412 ^ 1 << bit] for bit in range(16)]
    asked += [["allowed", number["ioctl"], 99, 0xFFFFFFFFC020462A]]
    asked += [["refused", number["socket"], family, 1] for family in range(64) if family != 1]
    asked += [["refused", number["clone"], 1 << 32 | 1 << 28], ["refused", number["personality"], 8]]
    asked += [["refused", number["clone3"]]]
    asked = [[f"{kind} {at}", *call] for at, (kind, *call) in enumerate(asked)]
    started = container("/filtered.py", "", "call", json.dumps(asked), profile=TRACED)
    assert started.wait(timeout=120)["StatusCode"] == 0, started.logs().decode()
    answers = json.loads(started.logs())
    assert [n for n, error in answers.items() if (error == 38) != n.startswith("refused")] == []


def test_libc_falls_back_from_clone3(container: Any) -> None:
    """The engine passes our ENOSYS on: with EPERM no thread could start."""
    asked = [["clone3", numbers(HERE)["clone3"]]]
    started = container("/filtered.py", "", "call", json.dumps(asked), profile=profile())
    assert started.wait(timeout=120)["StatusCode"] == 0, started.logs().decode()
    assert json.loads(started.logs()) == {"clone3": 38}


def test_the_group_of_a_container_can_be_read(container: Any) -> None:
    """Its control group is found by its first process and its id, whatever the engine calls it."""
    started = container("-c", "print('on', flush=True)\nwhile True: pass")
    while b"on" not in started.logs():
        time.sleep(0.02)
    started.reload()
    pid = started.attrs["State"]["Pid"]
    group = Cgroup.of_container(pid, started.id)
    assert group is not None
    assert pid in group.processes()
    assert group.memory_bytes()
    assert group.oom_kills() == 0


def test_memory_kills_in_a_container_are_seen(container: Any) -> None:
    """Also those of a child, after which the container goes on."""
    bomb = "import os, time\nif os.fork() == 0: bytearray(1 << 30)\nos.wait(); "
    started = container("-c", bomb + "print('on', flush=True); time.sleep(300)")
    while b"on" not in started.logs():
        time.sleep(0.02)
    started.reload()
    group = Cgroup.of_container(started.attrs["State"]["Pid"], started.id)
    assert group is not None
    assert group.oom_kills() == 1
    peak = group.peak_memory_bytes()
    assert peak is None or 100 << 20 <= peak <= 128 << 20
