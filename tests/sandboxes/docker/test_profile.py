"""Our seccomp profile and control group readings, with a container engine's own hands."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxes.docker.backend import PYTHON
from sandboxes.docker.engine import DockerEngine, Image
from sandboxes.seccomp import profile
from tests.sandboxes.attempts import FILTERED, calls, check

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
