"""The control: a project of our own, built after a project's build has failed.

It tells a broken machine from a broken project (sandboxes/job.py) by the same commands in the same sandbox.
Nothing of the project is in it: neither sources nor names, flags or architectures. It asks for one header
of every folder of the toolchain's, so that one that the sandbox does not show is noticed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.builder.flags import system_directories
from harness.builder.layout import SOURCE, Layout
from harness.builder.toolchain import Toolchain
from harness.builder.units import HEADER_SUFFIXES, Unit
from harness.records import ProjectFile
from sandboxes.job import Limits

CONTROL_LIMITS: Final = Limits(wall_s=300.0, cpu_s=60.0, memory_bytes=4 << 30)
_NAME: Final = "liftbench_control"
_FUNCTION: Final = 'extern "C" int liftbench_control() { return 0; }\n'
_KERNEL: Final = "__global__ void liftbench_control_kernel() {}\n"
_PLAIN: Final = re.compile(r"[\w.+-]+")
_ARCHITECTURE: Final = "9.0"


def control_layout(layout: Layout, toolchain: Toolchain) -> Layout:
    """What to build instead of `layout`: a file for g++, and one for nvcc where `layout` has one."""
    headers = "".join(
        f'#if !__has_include(<{header}>)\n#error "{header} is there but not seen"\n#endif\n'
        for header in _headers(layout, toolchain)
    )
    units = [Unit(source=f"{_NAME}.cpp", language="cxx")]
    files = {f"{_NAME}.cpp": headers + _FUNCTION}
    if any(unit.language == "cuda" for unit in layout.units.units):
        units.append(Unit(source=f"{_NAME}.cu", language="cuda", capabilities=(_ARCHITECTURE,)))
        files[f"{_NAME}.cu"] = _KERNEL
    tree = tuple(ProjectFile(path=f"{SOURCE}/{path}", text=files[path]) for path in sorted(files))
    return layout.model_copy(
        update={
            "module": _NAME,
            "ops_name": _NAME,
            "stable_abi": None,
            "units": layout.units.model_copy(update={"units": tuple(units)}),
            "tree": tree,
            "package": (),
        }
    )


def _headers(layout: Layout, toolchain: Toolchain) -> Iterator[str]:
    """The first header of each folder that compilers search, and of each folder in it."""
    for place in system_directories(layout, toolchain):
        if Path(place).is_absolute():  # the others belong to the build tree
            yield from _first_headers(toolchain.local(Path(place)))


def _first_headers(root: Path) -> Iterator[str]:
    if not root.is_dir():
        return
    inner = sorted(
        entry.name for entry in os.scandir(root) if entry.is_dir() and _PLAIN.fullmatch(entry.name)
    )
    for prefix in ("", *(f"{name}/" for name in inner)):
        names = (entry.name for entry in os.scandir(root / prefix) if entry.is_file())
        found = min(
            (n for n in names if _PLAIN.fullmatch(n) and Path(n).suffix in HEADER_SUFFIXES), default=None
        )
        if found is not None:
            yield f"{prefix}{found}"
