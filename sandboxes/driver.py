"""The libraries of NVIDIA's driver on this host, also where the dynamic loader does not know them."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

# As for a container with the capabilities `compute` and `utility`, without OpenCL.
_LIBRARIES: Final = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so",
    "libnvidia-allocator.so.1",
)
_ARCHITECTURES: Final = {"x86_64": "x86-64", "aarch64": "AArch64"}  # as ldconfig calls them
# GPU operators install the driver in the first without registering it. The loader searches the second by
# itself, also where its cache is older than the driver, or there is no ldconfig.
_SEARCHED: Final = Path("/usr/lib", f"{platform.machine()}-linux-gnu")
_ELSEWHERE: Final = (Path("/usr/local/nvidia/lib64"), _SEARCHED)


@cache
def loader_cache() -> str:
    """Output of `ldconfig -p`; empty where there is no such program."""
    try:
        done = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=10.0, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def driver_libraries(known: str | None = None, elsewhere: Sequence[Path] = _ELSEWHERE) -> list[Path]:
    """The driver's libraries, each link followed by its target; [] without a driver.

    `known`: output of `ldconfig -p`, by default of this machine. Libraries that it does not list are looked
    for in `elsewhere`, and a program then needs driver_environment().
    """
    text = loader_cache() if known is None else known
    architecture = _ARCHITECTURES.get(platform.machine(), "?")
    paths: dict[str, Path] = {}
    for line in text.splitlines():
        entry = re.fullmatch(r"\s*(\S+) \(([^)]*)\) => (\S+)", line)
        if entry is not None and architecture in entry[2]:
            paths.setdefault(entry[1], Path(entry[3]))
    for path in (path for folder in elsewhere for path in sorted(folder.glob("lib*.so*"))):
        paths.setdefault(path.name, path)
    found: dict[Path, None] = {}
    for wanted in _LIBRARIES:
        # libnvidia-gpucomp carries the driver's version instead of an interface number.
        for name in sorted(n for n in paths if n == wanted or (wanted[-2:] == "so" and n.startswith(wanted))):
            if paths[name].is_file():
                found |= {paths[name]: None, paths[name].resolve(): None}
    return list(found)


def driver_environment(libraries: Sequence[Path], known: str | None = None) -> dict[str, str]:
    """LD_LIBRARY_PATH where the loader does not find the driver's libraries by itself, else empty."""
    text = loader_cache() if known is None else known
    found = next((path for path in libraries if path.name == "libcuda.so.1"), None)
    # Not the system's own folder: its other libraries would come before those that torch brings along.
    if found is None or f"=> {found}" in text or found.parent == _SEARCHED:
        return {}
    return {"LD_LIBRARY_PATH": str(found.parent)}


def load_driver(known: str | None = None, elsewhere: Sequence[Path] = _ELSEWHERE) -> bool:
    """Load the driver's libraries into this process by path where the loader does not know them, so that
    whoever asks for them by name finds them; whether there were any."""
    libraries = driver_libraries(known, elsewhere)
    unknown = bool(driver_environment(libraries, known))
    for library in (str(path) for path in libraries if unknown and path.name in _LIBRARIES):
        with suppress(OSError):  # whoever needs it meets the same failure and reports it
            ctypes.CDLL(library)
    return unknown
