"""Landlock where it is meant to be used: inside a container without privileges, such as a Kubernetes pod."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import docker
import pytest

from harness import __version__
from harness.errors import SandboxError
from sandboxes.docker.backend import PYTHON, DockerBackend
from sandboxes.docker.engine import reference

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[3]
# liftbench and what its sandboxes import: the image for jobs has none of it.
NEEDED = (
    *("harness", "sandboxes", "pynvml", "packaging"),
    *("docker", "requests", "urllib3", "idna", "certifi", "charset_normalizer"),
)


def installed(name: str) -> Path:
    """Where a module or package is installed."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    path = Path(found.origin)
    return path.parent if path.name == "__init__.py" else path


SCRIPT = """
import json, os
from sandboxes.registry import automatic, choose_sandbox
choice = choose_sandbox("auto")
print(json.dumps([choice.sandbox.name, choice.why, os.getuid(), list(automatic(os.environ))]))
choice.sandbox.close()
"""


@pytest.mark.parametrize(
    "hardening",
    [{}, {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}],
    ids=["an engine's default", "restricted pod"],
)
def test_auto_takes_landlock_in_a_container(hardening: dict[str, list[str]]) -> None:
    """As a plain user under the engine's own filter, where namespaces are refused, it keeps its promises."""
    try:
        DockerBackend.open(os.environ, __version__).close()
    except SandboxError as error:
        pytest.skip(str(error))
    client = docker.from_env()
    try:
        said = client.containers.run(
            reference("run", __version__),
            [PYTHON, "-c", SCRIPT],
            user="1000:1000",
            network_mode="none",
            environment={"PYTHONPATH": "/source", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
            volumes={
                str(path): {"bind": f"/source/{path.name}", "mode": "ro"} for path in map(installed, NEEDED)
            },
            tmpfs={"/tmp": "size=64m,mode=1777"},
            remove=True,
            **hardening,
        )
    finally:
        client.close()
    name, why, uid, candidates = json.loads(said.splitlines()[-1])
    assert (name, uid, candidates[-1]) == ("landlock", 1000, "landlock")
    assert "keeps its 15 promises" in why
