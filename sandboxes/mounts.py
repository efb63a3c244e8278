"""The paths of this host that a job may read: mounted by bubblewrap, allowed by Landlock."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.job import Job

_SYSTEM: Final = Path("/usr")
_TOP: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives")
# glibc and torch count cores and memory nodes here.
_MACHINE: Final = ("/sys/devices/system/cpu", "/sys/devices/system/node")
# CUDA looks up the GPU and its links here.
_MACHINE_WITH_GPU: Final = ("/sys/devices", "/sys/bus/pci", "/sys/module")
# For scripts; the rest of /usr/bin is for builds or interactive use.
_TOOLS: Final = ("sh", "env", "uname")
_LIBRARIES: Final = ("lib", "lib32", "lib64", "libx32")
_CUDA_LIBRARIES: Final = ("local/cuda*/lib64", "local/cuda*/targets/*/lib")
# Compilers' folders below `lib`, and in wheels.
_COMPILERS: Final = re.compile(r"gcc(-cross)?|llvm.*|clang.*|bfd-plugins|rustlib|go(-.*)?")
_WHEELS: Final = ("nvidia/*/bin", "nvidia/*/nvvm", "nvidia/cuda_nvcc", "triton/backends/*/bin", "ziglang")


@dataclass(frozen=True)
class View:
    shown: tuple[Path, ...]
    hidden: tuple[Path, ...]
    """Excluded from `shown`; a path of `shown` may lie below it again."""
    links: tuple[tuple[Path, str], ...]
    """Top-level links (such as /lib) and their targets."""

    def in_order(self) -> list[tuple[Path, bool]]:
        both = [(path, True) for path in self.shown] + [(path, False) for path in self.hidden]
        return sorted(both, key=lambda entry: entry[0].parts)

    def granted(self) -> Iterator[tuple[Path, bool]]:
        """The same as an allow list: paths, with whether everything below or only the listing is readable."""
        hidden = set(self.hidden)
        above = {parent for path in hidden for parent in path.parents}
        for path in self.shown:
            if path.resolve() == path:
                yield from _granted(path, hidden, above)


def view_for(job: Job, also: Iterable[Path] = ()) -> View:
    """What `job` may read, with `also` (driver libraries). Raises SandboxError for a missing path."""
    run = job.role == "run"
    wanted = [*(_system_libraries() if run else [_SYSTEM]), *_interpreter(run)]
    wanted += [path for name in _ETC if (path := Path("/etc") / name).exists()]
    machine = (*_MACHINE, *_MACHINE_WITH_GPU) if job.device else _MACHINE
    wanted += [path for name in machine if (path := Path(name)).exists()]
    links = []
    for name in _TOP:
        path = Path("/") / name
        if path.is_symlink():
            links.append((path, str(path.readlink())))
        elif path.is_dir():
            wanted.append(path)
    for path in [*job.readable, *job.site, *also]:
        if not path.exists():
            raise SandboxError(f"a job is to read {path}, which does not exist")
        wanted.append(Path(os.path.abspath(path)))  # noqa: PTH100 - keep links
    real = {path.resolve() for path in wanted}
    # Targets of top-level links are shown under their own name.
    aliases = {p: p.resolve() for p in wanted if not any(link in p.parents for link, _ in links)}
    # Our own source: the whole checkout, or the two installed packages.
    root = Path(__file__).resolve().parents[1]
    ours = [root] if (root / "pyproject.toml").is_file() else [root / "harness", root / "sandboxes"]
    hidden = {*ours, *(_compilers(real) if run else [])}
    hidden |= {
        alias / path.relative_to(place)
        for alias, place in aliases.items()
        for path in hidden
        if path.is_relative_to(place)
    }
    return _without_repeats({*real, *aliases}, hidden, links)


def _system_libraries() -> list[Path]:
    found = [_SYSTEM / part / name for part in (".", "local") for name in _LIBRARIES]
    found += [path for pattern in _CUDA_LIBRARIES for path in _SYSTEM.glob(pattern)]
    found += [_SYSTEM / "bin" / name for name in _TOOLS]
    return [path for path in found if path.exists()]


def _interpreter(run: bool) -> list[Path]:
    """This Python: its whole prefixes, or with `run` only what it needs at run time."""
    prefixes = dict.fromkeys(Path(p) for p in (sys.prefix, sys.base_prefix, sys.base_exec_prefix))
    if not run:
        return [p for p in prefixes if not p.is_relative_to(_SYSTEM)] + _chain(Path(sys.executable))
    parts = [p / name for p in prefixes for name in (*_LIBRARIES, "pyvenv.cfg")]
    return [path for path in parts if path.exists()] + _chain(Path(sys.executable))


def _chain(path: Path) -> list[Path]:
    """A path and every link target on the way to the file, as for a virtual environment's python."""
    found = [path]
    while found[-1].is_symlink():
        found.append(Path(os.path.normpath(found[-1].parent / found[-1].readlink())))
    return found


def _compilers(shown: Iterable[Path]) -> Iterator[Path]:
    for path in shown:
        inner = list(path.iterdir()) if path.name in _LIBRARIES else []
        yield from (entry for entry in inner if _COMPILERS.fullmatch(entry.name))
        pythons = [entry for entry in inner if entry.name.startswith("python3")]
        sites = [entry / f"{kind}-packages" for entry in pythons for kind in ("site", "dist")]
        for site in [path, *sites]:
            if site.name.endswith("-packages") and site.is_dir():
                yield from (found for pattern in _WHEELS for found in site.glob(pattern))


def _without_repeats(shown: set[Path], hidden: set[Path], links: list[tuple[Path, str]]) -> View:
    kept: dict[Path, bool] = {}
    for path in sorted(shown | hidden, key=lambda p: p.parts):
        nearest = next((parent for parent in path.parents if parent in kept), None)
        visible = path in shown  # a requested path overrides an exclusion
        if visible != (nearest is not None and kept[nearest]) and (visible or path.exists()):
            kept[path] = visible
    return View(
        tuple(path for path, visible in kept.items() if visible),
        tuple(path for path, visible in kept.items() if not visible),
        tuple(links),
    )


def _granted(path: Path, hidden: set[Path], above: set[Path]) -> Iterator[tuple[Path, bool]]:
    if path in hidden:
        return
    if path not in above:
        yield path, True
        return
    yield path, False
    with os.scandir(path) as entries:
        inner = [path / entry.name for entry in entries if not entry.is_symlink()]
    for entry_path in inner:
        yield from _granted(entry_path, hidden, above)
