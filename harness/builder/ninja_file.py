"""The build.ninja of a layout.

The same layout gives the same text.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from harness.builder.flags import compile_argv, library_path, link_argv, object_path
from harness.builder.layout import SOURCE, Layout
from harness.builder.toolchain import Toolchain

_HEADER: Final = """\
# Written by liftbench; see docs/decisions/0002-direct-ninja.md.
ninja_required_version = 1.8

rule compile
  command = $argv "-ffile-prefix-map=$$PWD=."
  description = $what $in

rule link
  command = $argv
  description = link $out
"""


def ninja_file(layout: Layout, toolchain: Toolchain, *, driver: Sequence[str] = ()) -> str:
    """The text of build.ninja, to be run in the build tree; `driver`: words before every nvcc command."""
    edges = [_HEADER]
    objects = [object_path(unit) for unit in layout.units.units]
    for unit, output in zip(layout.units.units, objects, strict=True):
        argv = compile_argv(unit, layout, toolchain)
        if unit.language == "cuda":
            argv = (*driver, *argv)
        what = "nvcc" if unit.language == "cuda" else "g++"
        edges.append(
            f"build {_path(output)}: compile {_path(f'{SOURCE}/{unit.source}')}\n"
            f"  what = {what}\n  argv = {_command(argv)}\n"
        )
    library = library_path(layout)
    edges.append(
        f"build {_path(library)}: link {' '.join(map(_path, objects))}\n"
        f"  argv = {_command(link_argv(layout, toolchain))}\n"
    )
    edges.append(f"default {_path(library)}\n")
    return "\n".join(edges)


def _path(path: str) -> str:
    """For a build line: ninja splits at spaces and colons."""
    return path.replace("$", "$$").replace(":", "$:").replace(" ", "$ ")


def _command(argv: Sequence[str]) -> str:
    """For a variable that the shell will read."""
    return shlex.join(argv).replace("$", "$$")
