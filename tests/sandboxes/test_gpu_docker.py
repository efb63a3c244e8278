"""Docker hands out a GPU that is not there: a real engine of our own, and a stand-in for NVIDIA's hook."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes.container_toolkit import Toolkit, Version
from sandboxes.docker_gpu import docker_gpu_arguments
from sandboxes.gpu import GpuSlot
from sandboxes.nvml import Gpu

pytestmark = [pytest.mark.docker, pytest.mark.slow]
HOOK = Path(__file__).parents[1] / "fakes" / "nvidia_hook.sh"
SLOT = GpuSlot(Gpu(0, "GPU-5a5a5a5a-0000-1111-2222-333344445555", "Made-up H200", 0, (9, 0), False))
_START_S = 60.0


class Engine:
    """A Docker engine that believes that this machine has NVIDIA's container toolkit."""

    def __init__(self, folder: Path) -> None:
        """`folder` has a short path: sockets allow no long ones."""
        self._folder = folder
        self.client: Any = None
        self.log = folder / "hook"
        self.log.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        hook = programs / "nvidia-container-runtime-hook"
        hook.write_text(HOOK.read_text().replace("FOLDER", str(self.log)))
        hook.chmod(0o755)
        with (folder / "dockerd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-masq=false"),
                    *("--exec-opt", "native.cgroupdriver=cgroupfs", "--pidfile", folder / "pid"),
                    *("--data-root", folder / "data", "--exec-root", folder / "run"),
                    *("--host", f"unix://{folder}/s"),
                ],
                env={"PATH": f"{programs}:{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def connect(self) -> str | None:
        """None when it answers, from then on through `client`; else why it does not."""
        import docker
        from docker.errors import DockerException

        give_up = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < give_up:
            if (self._folder / "s").is_socket():
                try:
                    self.client = docker.DockerClient(base_url=f"unix://{self._folder}/s", timeout=60)
                    return None
                except (DockerException, OSError):
                    pass
            time.sleep(0.1)
        lines = (self._folder / "dockerd.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def add_image(self) -> None:
        """Empty but for the folders that the machine's own are mounted on."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
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

    def stop(self) -> None:
        """End it, and what it started."""
        if self.client is not None:
            self.client.close()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One for this module; ends with it."""
    if os.geteuid() != 0:
        pytest.skip("starting a Docker engine needs root")
    if shutil.which("dockerd") is None:
        pytest.skip("dockerd is not installed (apt-get install docker.io)")
    folder = Path(tempfile.mkdtemp(prefix="lbgpu-", dir="/tmp"))
    started = Engine(folder)
    try:
        problem = started.connect()
        if problem is not None:
            pytest.skip(f"a Docker engine does not start here: {problem}")
        started.add_image()
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


def asked_of_the_hook(engine: Engine) -> tuple[str, dict[str, str]]:
    """Its arguments, and the container's variables as it saw them."""
    config = json.loads((engine.log / "config.json").read_text())
    pairs = (word.partition("=") for word in config["process"]["env"])
    return (engine.log / "arguments").read_text().strip(), {name: value for name, _, value in pairs}


def test_the_hook_is_asked_for_this_gpu_and_no_more(engine: Engine) -> None:
    """By UUID, for computing only, through the arguments that the Docker sandbox uses."""
    toolkit = Toolkit(Version(1, 17, 8), "nvidia-ctk")
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
