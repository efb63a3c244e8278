"""Header sets on this machine: fetched from PyPI wheels, and CUTLASS for projects that depend on it.

A folder with a manifest is complete (it appeared by one rename) and is never changed.

    <user data>/liftbench/headers/     or LIFTBENCH_HEADERS
      cuda-13.0/manifest.json include/     headers that the nvcc wheels lack: cuBLAS, cuSPARSE and others
      torch-2.13.0/manifest.json include/  headers that a CPU-only torch lacks of its CUDA build
      cutlass_3_6/manifest.json include/ tools/util/include/
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import platformdirs
from pydantic import ValidationError

from harness.records import Record, digest_of

HEADERS_VARIABLE: Final = "LIFTBENCH_HEADERS"
INCLUDE: Final = "include"
UTIL_INCLUDE: Final = "tools/util/include"
"""Folder of CUTLASS, as in its repository."""
MANIFEST: Final = "manifest.json"


class Source(Record):
    """A wheel that files were taken from."""

    name: str
    version: str
    url: str
    sha256: str | None
    """Of the whole wheel, from the index; checked only if the wheel was read whole."""


class Manifest(Record):
    """Contents of a folder of headers, and their sources."""

    schema_version: Literal[1] = 1
    name: str
    wheels: tuple[Source, ...]
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """Over the files only, so that it does not depend on the mirror."""
        return digest_of(self.files)


class HeaderSet(Record):
    name: str
    root: Path
    include: tuple[Path, ...]
    digest: str
    sources: str


def headers_root(env: Mapping[str, str]) -> Path:
    if env.get(HEADERS_VARIABLE):
        return Path(env[HEADERS_VARIABLE]).absolute()
    return Path(platformdirs.user_data_path("liftbench")) / "headers"


def cuda_set(release: tuple[int, int]) -> str:
    """Name of the set for a release of nvcc."""
    return f"cuda-{release[0]}.{release[1]}"


def torch_set(version: str) -> str:
    """Name of the set for a CPU-only torch, without the local part of its version (+cpu)."""
    return f"torch-{version.partition('+')[0]}"


def load_headers(root: Path, name: str) -> HeaderSet | None:
    """The set `name`; None if it was not fetched, or by a version with another manifest."""
    folder = root / name
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
    return HeaderSet(
        name=name,
        root=folder,
        include=_include(folder),
        digest=manifest.digest,
        sources=", ".join(f"{source.name} {source.version}" for source in manifest.wheels),
    )


def _include(root: Path) -> tuple[Path, ...]:
    return tuple(d for d in (root / INCLUDE, root / UTIL_INCLUDE) if d.is_dir())


SOURCE_VARIABLE: Final = "CUTLASS_SRC_DIR"
# From kernel-builder's pyproject/deps.rs and nix-builder/pkgs/cutlass, August 2026.
MEANT: Final = {
    "cutlass_2_10": "2.10.0",
    "cutlass_3_5": "3.5.1",
    "cutlass_3_6": "3.6.0",
    "cutlass_3_8": "3.8.0",
    "cutlass_3_9": "3.9.2",
    "cutlass_4_0": "4.0.0",
    "cutlass_4_4": "4.4.2",
    "cutlass_4_5": "4.5.2",
}
# The nvidia-cutlass wheels with C++ headers (November 2026); 4.2.0 is the nearest to 4.0.0.
ON_PYPI: Final = {
    "cutlass_3_5": "3.5.1.0",
    "cutlass_3_6": "3.6.0.0",
    "cutlass_3_8": "3.8.0.0",
    "cutlass_4_0": "4.2.0.0",
}
WHEEL_SOURCE: Final = "cutlass_library/source"
"""Folder in the wheel that is laid out as CUTLASS's repository."""


def find_cutlass(env: Mapping[str, str], headers: Path) -> tuple[HeaderSet, ...]:
    """All CUTLASS headers on this machine, first choice first; `headers` contains the fetched ones."""
    found = [_checkout(env), *(load_headers(headers, name) for name in ON_PYPI)]
    return tuple(one for one in found if one is not None)


def choose_cutlass(name: str, found: Sequence[HeaderSet]) -> tuple[HeaderSet | None, str | None]:
    """The headers for `depends = [name]`, and a warning about their version; or None, and what to do.

    A checkout serves every version.
    """
    chosen = next((one for one in found if one.name in (SOURCE_VARIABLE, name)), None)
    meant = f"{name} means CUTLASS {MEANT[name]}"
    if chosen is None:
        checkout = f"set {SOURCE_VARIABLE} to a checkout of CUTLASS {MEANT[name]}"
        if name in ON_PYPI:
            return None, f"its headers are not on this machine: run `liftbench headers {name}`, or {checkout}"
        return None, f"no PyPI package has its headers: {checkout}"
    if chosen.name == SOURCE_VARIABLE:
        return chosen, f"{meant}; the checkout in {SOURCE_VARIABLE} is used"
    used = ON_PYPI[name].removesuffix(".0")
    same = used == MEANT[name]
    return chosen, None if same else f"{meant}; {used} is used, the nearest that PyPI has"


def _checkout(env: Mapping[str, str]) -> HeaderSet | None:
    root = Path(env.get(SOURCE_VARIABLE) or "/nonexistent").absolute()
    if not (root / INCLUDE / "cutlass").is_dir():
        return None
    digest = hashlib.sha256()  # by content, because a checkout can be edited
    include = _include(root)
    for path in sorted(p for place in include for p in place.rglob("*") if p.is_file()):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    name = SOURCE_VARIABLE
    return HeaderSet(name=name, root=root, include=include, digest=digest.hexdigest(), sources=str(root))
