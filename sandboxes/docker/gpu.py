"""GPUs in containers: CDI entries, the NVIDIA Container Toolkit, and the arguments for Docker.

A toolkit of unknown version, or with known container escapes, is refused. A CDI entry is chosen by its device
files, not by its name, so that a stale file cannot hand out another GPU than the locked one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from docker.types import DeviceRequest
from packaging.version import InvalidVersion, Version

from harness.errors import SandboxError
from sandboxes.gpu import GpuSlot, device_environment, device_nodes

# --- CDI ---------------------------------------------------------------------------------------

CDI_ROOTS: Final = (
    Path("/etc/cdi"),
    Path("/var/run/cdi"),
)  # in the order of the specification: later ones win
_KIND: Final = "nvidia.com/gpu"
_MAX_BYTES: Final = 4 << 20
_OWN_NODE: Final = re.compile(r"/nvidia\d+$|/nvidia-caps/nvidia-cap\d+$")
_CDI_SINCE: Final = 25  # the first Docker engine with CDI
_CAPABILITIES: Final = ("compute", "utility")


@dataclass(frozen=True)
class CdiDevice:
    """One entry of a CDI specification."""

    name: str
    """Qualified: nvidia.com/gpu=0"""
    nodes: tuple[Path, ...]
    libraries: tuple[Path, ...]
    """Driver libraries of the host that it mounts."""

    @property
    def own_nodes(self) -> frozenset[Path]:
        """Device files of one GPU or MIG instance, without those that all GPUs share."""
        return _own(self.nodes)


def cdi_devices(roots: Iterable[Path] = CDI_ROOTS) -> list[CdiDevice]:
    """All NVIDIA entries. Raises SandboxError for a file that cannot be parsed."""
    found: dict[str, CdiDevice] = {}
    for root in roots:
        files = (p for p in root.iterdir() if p.suffix in (".json", ".yaml")) if root.is_dir() else ()
        for path in sorted(files):
            found |= {device.name: device for device in _read(path)}
    return sorted(found.values(), key=lambda device: device.name)


def cdi_device(nodes: Sequence[Path], roots: Iterable[Path] = CDI_ROOTS) -> CdiDevice | None:
    """The entry with exactly the GPU of `nodes` (from device_nodes()); None if there is none."""
    wanted = _own(nodes)
    matching = [device for device in cdi_devices(roots) if device.own_nodes == wanted]
    # With a single GPU, `all` has the same nodes; prefer the specific name.
    return min(matching, key=lambda device: (device.name.endswith("=all"), device.name), default=None)


def _own(nodes: Iterable[Path]) -> frozenset[Path]:
    return frozenset(node for node in nodes if _OWN_NODE.search(str(node)))


def _read(path: Path) -> list[CdiDevice]:
    try:
        data = path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise SandboxError(f"{path} is larger than {_MAX_BYTES} bytes: that is no CDI specification")
        text = data.decode()
        spec = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise SandboxError(
            f"{path} cannot be read as a CDI specification: {reason}. Make it again: nvidia-ctk cdi generate"
        ) from error
    if not isinstance(spec, dict) or spec.get("kind") != _KIND:
        return []
    shared_nodes, shared_mounts = _edits(spec)
    devices = []
    for entry in _list(spec, "devices"):
        name = entry.get("name")
        if isinstance(name, str | int):
            nodes, mounts = _edits(entry)
            libraries = tuple(m for m in mounts + shared_mounts if re.search(r"\.so(\.|$)", m.name))
            devices.append(CdiDevice(f"{_KIND}={name}", nodes + shared_nodes, libraries))
    return devices


def _edits(entry: dict[str, Any]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Device files and mounted files of the host."""
    edits = entry.get("containerEdits")
    edits = edits if isinstance(edits, dict) else {}
    nodes = [node.get("hostPath") or node.get("path") for node in _list(edits, "deviceNodes")]
    mounts = [mount.get("hostPath") for mount in _list(edits, "mounts")]
    return _paths(nodes), _paths(mounts)


def _list(entry: dict[str, Any], key: str) -> list[dict[str, Any]]:
    found = entry.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _paths(words: Iterable[object]) -> tuple[Path, ...]:
    return tuple(Path(word) for word in words if isinstance(word, str) and word)


# --- the NVIDIA Container Toolkit, which opens a container for a GPU as root -------------------

_COMMAND_S: Final = 10.0
_PROGRAMS: Final = ("nvidia-container-cli", "nvidia-ctk", "nvidia-container-runtime")
_UPDATE: Final = "update the packages nvidia-container-toolkit and libnvidia-container1 (newest is best)"


class _Hole(NamedTuple):
    cve: str
    fixed: Version
    fixed_with_cdi: Version | None
    """None where CDI is not affected."""
    what: str


# NVIDIA's security bulletins for the container toolkit, September 2024 to July 2025.
_HOLES: Final = (
    _Hole("CVE-2024-0132", Version("1.16.2"), None, "a crafted image reaches the host's files"),
    _Hole("CVE-2025-23359", Version("1.17.4"), None, "a bypass of the fix of the one before"),
    _Hole(
        "CVE-2025-23266",
        Version("1.17.8"),
        Version("1.17.5"),
        "the hook, which runs as root, loads code that an image or its environment names",
    ),
    _Hole("CVE-2025-23267", Version("1.17.8"), Version("1.17.5"), "the hook follows links out of the image"),
)
FLOOR: Final = max(hole.fixed for hole in _HOLES)
CDI_FLOOR: Final = max(hole.fixed_with_cdi for hole in _HOLES if hole.fixed_with_cdi)


@dataclass(frozen=True)
class Toolkit:
    """The installed toolkit."""

    version: Version
    """The lowest that any of its programs reports: they are packaged separately."""
    program: str

    def refusal(self, *, cdi: bool) -> str | None:
        """Why it must not open a container, or None."""
        holes = [
            h for h in _HOLES if (fixed := h.fixed_with_cdi if cdi else h.fixed) and self.version < fixed
        ]
        if not holes:
            return None
        named = "; ".join(f"{hole.cve}: {hole.what}" for hole in holes)
        return (
            f"the NVIDIA Container Toolkit {self.version} ({self.program}) has known container escapes "
            f"({named}). At least {CDI_FLOOR if cdi else FLOOR} is needed: {_UPDATE}"
        )


def find_toolkit(path: str | None = None) -> Toolkit | None:
    """The toolkit by its programs on `path` (default: PATH); None when none reports its version."""
    found = {name: version for name in _PROGRAMS if (version := _version(name, path)) is not None}
    if not found:
        return None
    lowest = min(found, key=lambda name: found[name])
    return Toolkit(found[lowest], lowest)


def refusal(toolkit: Toolkit | None, *, cdi: bool) -> str | None:
    """Why Docker must not hand out a GPU on this machine, or None."""
    if toolkit is not None:
        return toolkit.refusal(cdi=cdi)
    return (
        f"no version of the NVIDIA Container Toolkit could be found ({', '.join(_PROGRAMS)} on PATH), and "
        f"versions below {FLOOR} have known container escapes: install it here, or use --sandbox bubblewrap"
    )


def _version(program: str, path: str | None) -> Version | None:
    """None where the program is absent or reports no version: both are refused."""
    found = shutil.which(program, path=path)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=_COMMAND_S, check=True
        )
        # The first line is its own version; the runtime prints runc's below.
        first = done.stdout.strip().partition("\n")[0]
        return Version(first.split()[-1].replace("~", "-"))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError, InvalidVersion):
        return None


# --- Docker's arguments ------------------------------------------------------------------------


def cdi_of_engine(slot: GpuSlot, engine: Mapping[str, Any], dev: Path = Path("/dev")) -> CdiDevice | None:
    """The CDI entry that this engine would use for `slot`; None where it has none, or CDI is off.

    `engine`: what its API reports (`client.info()`). Raises DeviceError, SandboxError.
    """
    major = re.match(r"\d{1,4}", str(engine.get("ServerVersion", "")))
    directories = engine.get("CDISpecDirs")  # empty where CDI is switched off
    if major is None or int(major[0]) < _CDI_SINCE or not isinstance(directories, list):
        return None
    return cdi_device(device_nodes(slot, dev), [Path(str(d)) for d in directories])


def docker_gpu_arguments(slot: GpuSlot, cdi: CdiDevice | None, toolkit: Toolkit | None) -> dict[str, Any]:
    """`device_requests` and `environment` for the docker SDK's create(). Raises SandboxError.

    `cdi` from cdi_of_engine(), `toolkit` from find_toolkit().
    """
    refused = refusal(toolkit, cdi=cdi is not None)
    if refused is not None:
        raise SandboxError(refused)
    if cdi is not None:
        request = DeviceRequest(driver="cdi", device_ids=[cdi.name])
    else:
        request = DeviceRequest(device_ids=[slot.uuid], capabilities=[["gpu", *_CAPABILITIES]])
    # Overrides an image's own variables, which may ask for more (graphics, video, other GPUs).
    environment = {"NVIDIA_DRIVER_CAPABILITIES": ",".join(_CAPABILITIES)}
    return {"device_requests": [request], "environment": environment | device_environment(slot)}
