"""Shared by the Docker tests: an engine, and an image that any machine can make in seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from harness.errors import SandboxError
from sandboxes.docker.backend import PYTHON, DockerBackend
from sandboxes.docker.engine import DockerEngine, Image
from tests.sandboxes.docker.tiny_image import make_tiny_image

TINY = f"liftbench-test/tiny:python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """The engine of this machine; a test that needs it is skipped where there is none."""
    try:
        found = DockerEngine.connect(os.environ)
    except SandboxError as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture(scope="session")
def image(engine: DockerEngine) -> Image:
    """The tiny image; made once on each machine."""
    if not engine.client.images.list(name=TINY):
        make_tiny_image(engine.client, TINY)
    return Image(engine.client, TINY)


@pytest.fixture
def backend(engine: DockerEngine, image: Image) -> DockerBackend:
    """The backend under test, with the tiny image for every role."""
    return DockerBackend(engine, {"build": image, "run": image, "run_jit": image})


@pytest.fixture
def python() -> str:
    """The image's interpreter."""
    return PYTHON
