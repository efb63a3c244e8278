"""CUTLASS for projects that depend on it: which version a dependency means, and where headers are.

Nothing is ever fetched here; a version other than the one meant is always named.

kernel-builder's CMake project looks at CUTLASS_SRC_DIR and else clones the tag of the version; its Nix
builds have both `include` and `tools/util/include` on the search path of every file. So has ours.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from harness.builder.headers.fetched import INCLUDE, UTIL_INCLUDE, load_headers
from harness.records import Record

SOURCE_VARIABLE: Final = "CUTLASS_SRC_DIR"
# kernel-builder's pyproject/deps.rs and nix-builder/pkgs/cutlass, August 2026.
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
"""Folder of the wheel that is laid out as CUTLASS's repository."""


class Cutlass(Record):
    """CUTLASS headers on this machine."""

    name: str | None
    """The dependency that they serve; None for CUTLASS_SRC_DIR, which serves all."""
    version: str
    """From cutlass/version.h, such as 3.6.0."""
    origin: Literal["CUTLASS_SRC_DIR", "fetched", "wheel"]
    root: Path
    include: tuple[Path, ...]
    digest: str

    @property
    def fact(self) -> str:
        """For records and keys: without paths."""
        return f"{self.name or self.origin}:{self.version}:{self.digest[:12]}"


def find_cutlass(env: Mapping[str, str], headers: Path) -> tuple[Cutlass, ...]:
    """All CUTLASS headers on this machine, first choice first; `headers` holds the fetched ones."""
    found = [_from_source(env)]
    for name in ON_PYPI:
        fetched = load_headers(headers, name)
        if fetched is not None:
            found.append(_described(name, "fetched", fetched.root, fetched.digest))
    found.append(_from_wheel())
    return tuple(cutlass for cutlass in found if cutlass is not None)


def choose_cutlass(name: str, found: Sequence[Cutlass]) -> Cutlass | None:
    """What `depends = [name]` gets; None where this machine has nothing for it."""
    return next((cutlass for cutlass in found if cutlass.name in (None, name)), None)


def cutlass_warning(name: str, cutlass: Cutlass) -> str | None:
    """What to say where another version than the one meant is used."""
    if cutlass.version == MEANT[name]:
        return None
    why = "from CUTLASS_SRC_DIR" if cutlass.name is None else "the nearest that PyPI has"
    return f"{name} means CUTLASS {MEANT[name]}; {cutlass.version} is used, {why}"


def cutlass_missing(name: str) -> str:
    """What to do where this machine has no headers for `name`."""
    checkout = f"set {SOURCE_VARIABLE} to a checkout of CUTLASS {MEANT[name]}"
    if name in ON_PYPI:
        return f"its headers are not on this machine: run `liftbench headers {name}`, or {checkout}"
    return f"no PyPI package has its headers: {checkout}"


def _described(
    name: str | None, origin: Literal["CUTLASS_SRC_DIR", "fetched", "wheel"], root: Path, digest: str
) -> Cutlass | None:
    """None where `root` is not laid out as CUTLASS's repository."""
    try:
        text = (root / INCLUDE / "cutlass/version.h").read_text(errors="replace")
    except OSError:
        return None
    parts = dict(re.findall(r"#define\s+CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)", text))
    include = tuple(d for d in (root / INCLUDE, root / UTIL_INCLUDE) if d.is_dir())
    version = ".".join(parts.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))
    return Cutlass(name=name, version=version, origin=origin, root=root, include=include, digest=digest)


def _from_source(env: Mapping[str, str]) -> Cutlass | None:
    if not env.get(SOURCE_VARIABLE):
        return None
    root = Path(env[SOURCE_VARIABLE]).absolute()
    # By content: a checkout can be edited, and its builds must not be mixed up.
    return _described(None, "CUTLASS_SRC_DIR", root, _digest_of_files(root))


def _from_wheel() -> Cutlass | None:
    """Headers of an installed nvidia-cutlass, where it is the version of a dependency."""
    try:
        version = importlib.metadata.version("nvidia-cutlass")
    except importlib.metadata.PackageNotFoundError:
        return None
    name = next((name for name, wheel in ON_PYPI.items() if wheel == version), None)
    spec = importlib.util.find_spec(WHEEL_SOURCE.partition("/")[0])
    if name is None or spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parents[1] / WHEEL_SOURCE
    digest = hashlib.sha256(f"nvidia-cutlass {version}".encode()).hexdigest()
    return _described(name, "wheel", root, digest)


def _digest_of_files(root: Path) -> str:
    """SHA-256 over the headers below `root`: paths and contents."""
    total = hashlib.sha256()
    for place in (INCLUDE, UTIL_INCLUDE):
        for path in sorted(p for p in (root / place).rglob("*") if p.is_file()):
            total.update(path.relative_to(root).as_posix().encode() + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
