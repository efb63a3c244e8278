"""The NVIDIA Container Toolkit, which opens a container for a GPU as root: is it new enough to be trusted?

A version that is unknown or below the floor is refused, and the refusal names the holes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import NamedTuple

_COMMAND_S = 10.0
_PROGRAMS = ("nvidia-container-cli", "nvidia-ctk", "nvidia-container-runtime")
_UPDATE = "update the packages nvidia-container-toolkit and libnvidia-container1 (newest is best)"


class Version(NamedTuple):
    """Three numbers; a release candidate is older than its release."""

    major: int
    minor: int
    patch: int
    released: bool = True

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}{'' if self.released else '-rc'}"


class _Hole(NamedTuple):
    cve: str
    fixed: Version
    fixed_with_cdi: Version | None
    """None where CDI never had it."""
    what: str


# NVIDIA's security bulletins for the container toolkit, September 2024 to July 2025.
_HOLES = (
    _Hole("CVE-2024-0132", Version(1, 16, 2), None, "a crafted image reaches the host's files"),
    _Hole("CVE-2025-23359", Version(1, 17, 4), None, "a way round the fix of the one before"),
    _Hole(
        "CVE-2025-23266",
        Version(1, 17, 8),
        Version(1, 17, 5),
        "the hook, which runs as root, loads code that an image or its environment names",
    ),
    _Hole("CVE-2025-23267", Version(1, 17, 8), Version(1, 17, 5), "the hook follows links out of the image"),
)
FLOOR = max(hole.fixed for hole in _HOLES)
CDI_FLOOR = max(hole.fixed_with_cdi for hole in _HOLES if hole.fixed_with_cdi)


@dataclass(frozen=True)
class Toolkit:
    """What is installed."""

    version: Version
    """The lowest that any of its programs tells: they are packaged apart."""
    told_by: str

    def refusal(self, *, cdi: bool) -> str | None:
        """Why it must not open a container of ours, or None."""
        open_ = [
            h for h in _HOLES if (fixed := h.fixed_with_cdi if cdi else h.fixed) and self.version < fixed
        ]
        if not open_:
            return None
        holes = "; ".join(f"{hole.cve}: {hole.what}" for hole in open_)
        floor = CDI_FLOOR if cdi else FLOOR
        return (
            f"the NVIDIA Container Toolkit {self.version} ({self.told_by}) has known ways out of a container "
            f"({holes}). At least {floor} is needed: {_UPDATE}"
        )


UNKNOWN = (
    f"no version of the NVIDIA Container Toolkit could be found ({', '.join(_PROGRAMS)} on PATH), and "
    f"versions below {FLOOR} have known ways out of a container: install it here, or use --sandbox bubblewrap"
)


def find_toolkit(path: str | None = None) -> Toolkit | None:
    """The installed toolkit by its programs on `path` (default: PATH); None when none tells its version."""
    told = {name: version for name in _PROGRAMS if (version := _version(name, path)) is not None}
    if not told:
        return None
    lowest = min(told, key=lambda name: told[name])
    return Toolkit(told[lowest], lowest)


def refusal(toolkit: Toolkit | None, *, cdi: bool) -> str | None:
    """Why Docker must not hand out a GPU on this machine, or None."""
    return UNKNOWN if toolkit is None else toolkit.refusal(cdi=cdi)


def _version(program: str, path: str | None) -> Version | None:
    found = shutil.which(program, path=path)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=_COMMAND_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # It does not tell: refused, like one that is not there.
    # The first line is its own version; the runtime goes on with runc's.
    first = done.stdout.strip().partition("\n")[0]
    number = re.search(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})([-~]?rc)?", first)
    if number is None:
        return None
    major, minor, patch = (int(number[i]) for i in (1, 2, 3))
    return Version(major, minor, patch, released=number[4] is None)
