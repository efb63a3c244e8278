"""The real images: our expert projects are built in one and imported in the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import __version__
from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain, toolchain_of_image
from harness.errors import SandboxError
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace
from harness.records import Project, ProjectFile, Target
from harness.suite.catalogue import all_tasks, expert_directory
from sandboxes.docker.backend import DockerBackend
from sandboxes.pool import SandboxPool

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    """Docker with the images of this version; skips where there are none."""
    try:
        backend = DockerBackend.open(os.environ, __version__)
    except SandboxError as error:
        pytest.skip(str(error))
    made = SandboxPool(backend)
    yield made
    made.close()
    backend.close()


@pytest.fixture(scope="module")
def of_image(sandbox: SandboxPool, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """What the build image says that it has."""
    assert sandbox.image is not None
    return toolchain_of_image(
        sandbox.image.description(), sandbox.image.view(tmp_path_factory.mktemp("view"))
    )


def expert(name: str) -> Project:
    """The project that is shipped for a task."""
    task = next(loaded.task for loaded in all_tasks() if loaded.task.id == name)
    folder = expert_directory(task)
    assert folder is not None
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return Project(
        files=tuple(ProjectFile(path=p.relative_to(folder).as_posix(), text=p.read_text()) for p in files)
    )


def built(target: Target, sandbox: SandboxPool, toolchain: Toolchain, cache: Path) -> Built:
    """An expert project, built in the image."""
    made = build(expert("l1/silu_and_mul"), target, sandbox=sandbox, toolchain=toolchain, cache=cache)
    assert made.result.ok and made.result.calls is not None, made.result.finding
    assert made.result.calls.unresolved == ()
    return made


def test_the_build_image_builds_for_sm_90(sandbox, of_image, tmp_path):
    """nvcc, and the tools that read what it made, are the image's."""
    result = built("cuda", sandbox, of_image, tmp_path).result
    assert result.kernels and all(kernel.architecture.startswith("sm_90") for kernel in result.kernels)
    assert result.toolchain["nvcc"].startswith("13.")


def test_what_the_build_image_builds_is_loaded_in_the_run_image(sandbox, of_image, tmp_path):
    """The two have the same torch: the library is imported, and its operators are registered."""
    made = built("cpu", sandbox, of_image, tmp_path)
    assert made.package is not None and of_image.torch_root is not None
    library = next(made.package.glob("*.abi3.so"))
    source = Source(
        "project",
        made.package / "__init__.py",
        "silu_and_mul",
        "silu_and_mul",
        namespace=library.name.removesuffix(".abi3.so"),
    )
    place = WorkerPlace(
        site=(of_image.torch_root.parent,), python=of_image.python, in_image=True, memory_bytes=2 << 30
    )
    worker = WorkerClient(source, sandbox, place, wall_s=120)
    try:
        worker.load()
        assert worker.operators
    finally:
        worker.close()
