"""How Docker hands a GPU to a container.

Nothing is handed out by a toolkit that is unknown or has known ways out of a container, and what a
container may see of the GPU is said by us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import SandboxError
from sandboxes.cdi import CdiDevice, cdi_device
from sandboxes.container_toolkit import Toolkit, refusal
from sandboxes.gpu import GpuSlot, device_environment, device_nodes

_CDI_SINCE = 25  # the first engine that knows CDI
_CAPABILITIES = ("compute", "utility")


def cdi_of_engine(slot: GpuSlot, engine: Mapping[str, Any], dev: Path = Path("/dev")) -> CdiDevice | None:
    """The CDI entry that this engine would use for `slot`; None where it has none, or CDI is off.

    `engine`: what its API says of itself (`client.info()`). Raises DeviceError, SandboxError.
    """
    major = re.match(r"\d{1,4}", str(engine.get("ServerVersion", "")))
    # An empty list of directories is the engine's way to say that CDI is switched off.
    directories = engine.get("CDISpecDirs")
    if major is None or int(major[0]) < _CDI_SINCE or not isinstance(directories, list):
        return None
    return cdi_device(device_nodes(slot, dev), [Path(str(d)) for d in directories])


def docker_gpu_arguments(slot: GpuSlot, cdi: CdiDevice | None, toolkit: Toolkit | None) -> dict[str, Any]:
    """Arguments for the docker SDK's create(): `device_requests` and `environment`.

    `cdi` from cdi_of_engine(), `toolkit` from find_toolkit(). Raises SandboxError when that is refused.
    """
    from docker.types import DeviceRequest

    refused = refusal(toolkit, cdi=cdi is not None)
    if refused is not None:
        raise SandboxError(refused)
    if cdi is not None:
        request = DeviceRequest(driver="cdi", device_ids=[cdi.name])
    else:
        request = DeviceRequest(device_ids=[slot.uuid], capabilities=[["gpu", *_CAPABILITIES]])
    # Ours, so that an image's own variables ask for nothing more (graphics, video, other GPUs).
    environment = {"NVIDIA_DRIVER_CAPABILITIES": ",".join(_CAPABILITIES)}
    return {"device_requests": [request], "environment": environment | device_environment(slot)}
