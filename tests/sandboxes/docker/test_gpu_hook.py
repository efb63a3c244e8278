"""Docker hands out a GPU that does not exist: a real engine of our own, and a fake of NVIDIA's hook."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from sandboxes.docker.backend import PYTHON
from sandboxes.docker.gpu import Toolkit, docker_gpu_arguments
from sandboxes.gpu import GpuSlot
from sandboxes.nvml import Gpu
from tests.sandboxes.docker.conftest import TINY
from tests.sandboxes.docker.own_engine import OwnEngine
from tests.sandboxes.docker.tiny_image import make_tiny_image

pytestmark = [pytest.mark.docker, pytest.mark.slow]
HOOK = Path(__file__).parents[2] / "fakes" / "nvidia_hook.sh"
SLOT = GpuSlot(Gpu(0, "GPU-5a5a5a5a-0000-1111-2222-333344445555", "Made-up H200", 0, (9, 0), False))


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnEngine, Path]]:
    """A Docker engine that finds a stand-in for NVIDIA's hook on its PATH, and what that writes."""
    folder = tmp_path_factory.mktemp("hook")
    program = folder / "nvidia-container-runtime-hook"
    program.write_text(HOOK.read_text().replace("FOLDER", str(folder)))
    program.chmod(0o755)
    own = OwnEngine(path=f"{folder}:{os.environ['PATH']}")
    make_tiny_image(own.engine.client, TINY)
    yield own, folder
    own.remove()


def variables(own: OwnEngine, **arguments: Any) -> dict[str, str]:
    """Of a container with these arguments."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    output = own.engine.client.containers.run(
        TINY, [PYTHON, "-c", code], network_mode="none", remove=True, **arguments
    )
    found: dict[str, str] = json.loads(output)
    return found


def test_the_hook_is_asked_for_this_gpu_and_no_more(hook: tuple[OwnEngine, Path]) -> None:
    """By UUID, for computing only; for a job without a GPU no code of the toolkit runs."""
    own, folder = hook
    assert not [name for name in variables(own) if "NVIDIA" in name]
    assert not (folder / "arguments").exists()
    toolkit = Toolkit(Version("1.17.8"), "nvidia-ctk")
    inside = variables(own, **docker_gpu_arguments(SLOT, None, toolkit))
    assert inside["CUDA_VISIBLE_DEVICES"] == SLOT.uuid
    assert (folder / "arguments").read_text().strip() == "prestart"
    words = json.loads((folder / "config.json").read_text())["process"]["env"]
    asked = {name: value for name, _, value in (word.partition("=") for word in words)}
    assert asked["NVIDIA_VISIBLE_DEVICES"] == SLOT.uuid
    assert set(asked["NVIDIA_DRIVER_CAPABILITIES"].split(",")) == {"compute", "utility"}
