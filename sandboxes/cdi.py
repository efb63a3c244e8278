"""CDI specifications: files in which a GPU vendor tells container engines what belongs to a device.

An entry is chosen by the device files that it hands in, not by its name: a stale file cannot hand out
another GPU than the one that was locked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import SandboxError

ROOTS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # the specification's own places; later ones win
KIND = "nvidia.com/gpu"
_MAX_BYTES = 4 << 20
_OWN_NODE = re.compile(r"/nvidia\d+$|/nvidia-caps/nvidia-cap\d+$")


@dataclass(frozen=True)
class CdiDevice:
    """One entry."""

    name: str
    """Qualified: nvidia.com/gpu=0"""
    nodes: tuple[Path, ...]
    libraries: tuple[Path, ...]
    """The driver's files on the host that it mounts."""

    @property
    def own_nodes(self) -> frozenset[Path]:
        """Those of one GPU or MIG instance, without the ones that all share."""
        return _own(self.nodes)


def cdi_devices(roots: Iterable[Path] = ROOTS) -> list[CdiDevice]:
    """All NVIDIA entries. Raises SandboxError for a file that cannot be understood."""
    found: dict[str, CdiDevice] = {}
    for root in roots:
        files = (p for p in root.iterdir() if p.suffix in (".json", ".yaml")) if root.is_dir() else ()
        for path in sorted(files):
            found |= {device.name: device for device in _read(path)}
    return sorted(found.values(), key=lambda device: device.name)


def cdi_device(nodes: Sequence[Path], roots: Iterable[Path] = ROOTS) -> CdiDevice | None:
    """The entry that hands in exactly the GPU of `nodes` (from gpu.device_nodes); None when none does."""
    wanted = _own(nodes)
    matching = [device for device in cdi_devices(roots) if device.own_nodes == wanted]
    # `all` equals the only GPU of a machine with one; its own name says more.
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
    if not isinstance(spec, dict) or spec.get("kind") != KIND:
        return []
    shared = _edits(spec)
    devices = []
    for entry in _list(spec, "devices"):
        own, name = _edits(entry), entry.get("name")
        if isinstance(name, str | int):
            nodes, mounts = own[0] + shared[0], own[1] + shared[1]
            libraries = tuple(m for m in mounts if re.search(r"\.so(\.|$)", m.name))
            devices.append(CdiDevice(f"{KIND}={name}", nodes, libraries))
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
