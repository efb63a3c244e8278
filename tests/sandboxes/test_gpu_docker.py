"""Docker hands out a GPU that does not exist: a real engine of our own, and a fake of NVIDIA's hook."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from sandboxes.docker.gpu import Toolkit, docker_gpu_arguments
from sandboxes.gpu import GpuSlot
from sandboxes.nvml import Gpu
from tests.sandboxes.docker.own_engine import OwnEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]
HOOK = Path(__file__).parents[1] / "fakes" / "nvidia_hook.sh"
SLOT = GpuSlot(Gpu(0, "GPU-5a5a5a5a-0000-1111-2222-333344445555", "Made-up H200", 0, (9, 0), False))


class Engine:
    """A Docker engine that finds NVIDIA's container toolkit on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "hook"
        programs = folder / "bin"
        for made in (self.log, programs):
            made.mkdir()
        hook = programs / "nvidia-container-runtime-hook"
        hook.write_text(HOOK.read_text().replace("FOLDER", str(self.log)))
        hook.chmod(0o755)
        self.own = OwnEngine(path=f"{programs}:{os.environ['PATH']}")
        self.client = self.own.engine.client
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:  # folders to mount the machine's own on
            for name in ("proc", "sys", "dev", "etc", "tmp", "usr", "bin", "lib", "lib64"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
        self.client.api.import_image_from_data(data.getvalue(), repository="machine", tag="here")

    def run(self, **arguments: Any) -> str:
        """What `env` prints in a container with these arguments."""
        mounts = {path: {"bind": path, "mode": "ro"} for path in ("/usr", "/bin", "/lib", "/lib64")}
        container = self.client.containers.create(
            "machine:here", ["/usr/bin/env"], volumes=mounts, network_mode="none", **arguments
        )
        try:
            container.start()
            container.wait(timeout=60)
            return str(container.logs().decode())
        finally:
            container.remove(force=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One for this module."""
    started = Engine(tmp_path_factory.mktemp("hook"))
    yield started
    started.own.remove()


def asked_of_the_hook(engine: Engine) -> tuple[str, dict[str, str]]:
    """Its arguments, and the container's variables as it saw them."""
    config = json.loads((engine.log / "config.json").read_text())
    pairs = (word.partition("=") for word in config["process"]["env"])
    return (engine.log / "arguments").read_text().strip(), {name: value for name, _, value in pairs}


def test_the_hook_is_asked_for_this_gpu_and_no_more(engine: Engine) -> None:
    """By UUID, for computing only, through the arguments that the Docker sandbox uses."""
    toolkit = Toolkit(Version("1.17.8"), "nvidia-ctk")
    printed = engine.run(**docker_gpu_arguments(SLOT, None, toolkit))
    arguments, environment = asked_of_the_hook(engine)
    assert arguments == "prestart"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == SLOT.uuid
    assert set(environment["NVIDIA_DRIVER_CAPABILITIES"].split(",")) == {"compute", "utility"}
    assert f"CUDA_VISIBLE_DEVICES={SLOT.uuid}" in printed


def test_a_container_without_a_gpu_never_meets_the_hook(engine: Engine) -> None:
    """Builds get no GPU, and no code of the toolkit runs for them."""
    for path in engine.log.iterdir():
        path.unlink()
    assert "NVIDIA" not in engine.run()
    assert list(engine.log.iterdir()) == []
