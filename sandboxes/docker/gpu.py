"""GPUs in containers: CDI entries, the NVIDIA Container Toolkit, and the arguments for Docker.

A CDI entry is chosen by its device files, not by its name, so that a stale file cannot hand out another GPU
than the locked one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from docker.types import DeviceRequest
from packaging.version import InvalidVersion, Version

from harness.errors import SandboxError
from sandboxes.gpu import NO_MPS, GpuSlot, device_nodes

CDI_ROOTS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))  # later ones win
_KIND: Final = "nvidia.com/gpu"
_MALFORMED: Final = (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError)
_OWN_NODE: Final = re.compile(r"/nvidia\d+$|/nvidia-caps/nvidia-cap\d+$")
_CDI_SINCE: Final = 25  # the first Docker engine with CDI
_CAPABILITIES: Final = ("compute", "utility")


def cdi_device(nodes: Sequence[Path], roots: Iterable[Path] = CDI_ROOTS) -> str | None:
    """The name of the entry with exactly the GPU of `nodes` (from device_nodes()); None if there is none.

    Raises SandboxError for a file that cannot be parsed.
    """
    found: dict[str, set[Path]] = {}
    for root in roots:
        for path in sorted([*root.glob("*.json"), *root.glob("*.yaml")]):
            found |= _read(path)
    matching = [name for name, its in found.items() if its == _own(nodes)]
    # With a single GPU, `all` has the same nodes; prefer the specific name.
    return min(matching, key=lambda name: (name.endswith("=all"), name), default=None)


def _own(nodes: Iterable[Path]) -> set[Path]:
    """Device files of one GPU or MIG instance, without those that all GPUs share."""
    return {node for node in nodes if _OWN_NODE.search(str(node))}


def _read(path: Path) -> dict[str, set[Path]]:
    """Names of entries, and the GPU's own device files of each."""
    try:
        text = path.read_text()
        spec = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        if spec["kind"] != _KIND:
            return {}
        return {
            f"{_KIND}={entry['name']}": _own([*_nodes(entry), *_nodes(spec)]) for entry in spec["devices"]
        }
    except _MALFORMED as error:
        reason = " ".join(str(error).split())
        raise SandboxError(
            f"{path} cannot be read as a CDI specification: {reason}. Make it again: nvidia-ctk cdi generate"
        ) from error


def _nodes(entry: Mapping[str, Any]) -> list[Path]:
    nodes = entry.get("containerEdits", {}).get("deviceNodes", [])
    return [Path(node.get("hostPath") or node["path"]) for node in nodes]


_PROGRAMS: Final = ("nvidia-container-cli", "nvidia-ctk", "nvidia-container-runtime")
# NVIDIA's security bulletins for the container toolkit, September 2024 to July 2025.
_HOLES: Final = "CVE-2024-0132, CVE-2025-23359, CVE-2025-23266, CVE-2025-23267"
FLOOR: Final = Version("1.17.8")
CDI_FLOOR: Final = Version("1.17.5")


@dataclass(frozen=True)
class Toolkit:
    version: Version
    """The lowest that any of its programs reports."""
    program: str


def find_toolkit(path: str | None = None) -> Toolkit | None:
    """The toolkit by its programs on `path` (default: PATH); None when none reports its version."""
    found = {name: version for name in _PROGRAMS if (version := _version(name, path)) is not None}
    if not found:
        return None
    lowest = min(found, key=lambda name: found[name])
    return Toolkit(found[lowest], lowest)


def refusal(toolkit: Toolkit | None, *, cdi: bool) -> str | None:
    """Why Docker must not hand out a GPU on this machine, or None."""
    floor = CDI_FLOOR if cdi else FLOOR
    if toolkit is None:
        return (
            f"no version of the NVIDIA Container Toolkit could be found ({', '.join(_PROGRAMS)} on PATH), and"
            f" versions below {floor} have known container escapes: install it, or use --sandbox bubblewrap"
        )
    if toolkit.version >= floor:
        return None
    return (
        f"the NVIDIA Container Toolkit {toolkit.version} ({toolkit.program}) has known container escapes "
        f"({_HOLES}). At least {floor} is needed: update the packages "
        "nvidia-container-toolkit and libnvidia-container1 (newest is best)"
    )


def _version(program: str, path: str | None) -> Version | None:
    found = shutil.which(program, path=path)
    if found is None:
        return None
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10.0, check=True)
        # The first line is its own version; the runtime prints runc's below.
        first = done.stdout.strip().partition("\n")[0]
        return Version(first.split()[-1].replace("~", "-"))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError, InvalidVersion):
        return None


def cdi_of_engine(slot: GpuSlot, engine: Mapping[str, Any], dev: Path = Path("/dev")) -> str | None:
    """The name of the CDI entry that this engine would use for `slot`; None where it has none, or CDI is off.

    `engine`: what its API reports (`client.info()`). Raises DeviceError, SandboxError.
    """
    major = re.match(r"\d{1,4}", str(engine.get("ServerVersion", "")))
    directories = engine.get("CDISpecDirs")  # empty where CDI is switched off
    if major is None or int(major[0]) < _CDI_SINCE or not isinstance(directories, list):
        return None
    return cdi_device(device_nodes(slot, dev), [Path(str(d)) for d in directories])


def docker_gpu_arguments(slot: GpuSlot, cdi: str | None, toolkit: Toolkit | None) -> dict[str, Any]:
    """`device_requests` and `environment` for the docker SDK's create(). Raises SandboxError.

    `cdi` from cdi_of_engine(), `toolkit` from find_toolkit().
    """
    refused = refusal(toolkit, cdi=cdi is not None)
    if refused is not None:
        raise SandboxError(refused)
    if cdi is not None:
        request = DeviceRequest(driver="cdi", device_ids=[cdi])
    else:
        request = DeviceRequest(device_ids=[slot.uuid], capabilities=[["gpu", *_CAPABILITIES]])
    # Overrides an image's own variables, which may ask for more (graphics, video, other GPUs).
    environment = {
        "NVIDIA_DRIVER_CAPABILITIES": ",".join(_CAPABILITIES),
        "CUDA_VISIBLE_DEVICES": slot.uuid,
        "CUDA_MPS_PIPE_DIRECTORY": NO_MPS,
    }
    return {"device_requests": [request], "environment": environment}
