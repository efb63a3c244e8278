"""Precompiled headers for g++: what many bindings begin with is parsed once.

Owns: finding what a unit begins with, making its precompiled header, and their folder. Does not own: the
flags (flags.py). nvcc has nothing of the kind.
Invariant: a precompiled header holds what the unit includes first, in that order, and nothing else, so
that no declaration becomes visible that was not. g++ checks flags and macros, and leaves it unused
where they do not fit. It is made in a sandbox of its own, without a byte of any project.

    <cache>/headers/<key[:2]>/<key>/ torch/library.h  torch/library.h.gch
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from filelock import FileLock

from harness.builder.flags import header_argv
from harness.builder.layout import SOURCE, Layout
from harness.builder.reuse.reachable import Search
from harness.builder.reuse.room import make_room, touch
from harness.builder.staging import GENERATED_HEADER
from harness.builder.toolchain import Toolchain
from harness.builder.units import Unit
from harness.records import digest_of
from sandboxes.job import Job, Limits, Sandbox, Status
from sandboxes.owners import owned_folder
from sandboxes.scratch import CollectError

_RECIPE: Final = 1
_ROOM_BYTES: Final = 4 << 30
"""Five with all of torch (716 MB each), or fifty with its stable ABI (77 MB)."""
_LIMITS: Final = Limits(wall_s=300.0, memory_bytes=6 << 30, file_bytes=2 << 30)
_WANTED_IN_VAIN: Final = 3
"""Making one takes 2 to 4 times what it saves (docs/building.md)."""
_PIECE: Final = 200 << 20  # a sandbox hands out at most 256 MiB at a time
_MOST_PIECES: Final = 10

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_INCLUDE = re.compile(r'#\s*include\s*(?:<([\w./+-]+)>|"([\w./+-]+)")')
_ONCE = re.compile(r"#\s*pragma\s+once")
_HEAVY = re.compile(r"(?:torch|ATen)/[\w/]+\.h")
# Headers that a second include does not change: all of these are guarded, but for cassert.
_KNOWN = re.compile(r"(?:torch|ATen|c10)/[\w/]+\.h|Python\.h|(?!cassert$)[a-z_]+")
_STABLE_ABI = re.compile(
    r'<torch/(?:csrc/stable|headeronly|csrc/inductor/aoti_torch/c)/|"|<(?!torch/|ATen/|c10/)'
)
_HARMLESS_FLAG = re.compile(r"-[WDUI]")
_DEPENDENCIES: Final = "dependencies"
_REGISTRATION: Final = '"registration.h"'


def leading_headers(unit: Unit, layout: Layout) -> tuple[str, ...]:
    """What `unit` includes before anything else of its own, as `<name>`; empty where it does not pay.

    Project headers that come first are looked into. registration.h, ours, stands as `"registration.h"`.
    """
    tree = {file.path: file.text for file in layout.tree}
    found: list[str] = []
    _Walk(Search(tree, unit), found).file(f"{SOURCE}/{unit.source}")
    while found and not _HEAVY.fullmatch(found[-1].strip("<>")):
        found.pop()
    # g++ looks for a precompiled header only where it looks for <...>, and only for the first one.
    return () if not found or found[0] == _REGISTRATION else tuple(found)


class _Walk:
    """Follows includes until the first line that is something else."""

    def __init__(self, search: Search, found: list[str]) -> None:
        self._search = search
        self._found = found
        self._open: list[str] = []

    def file(self, path: str) -> bool:
        """Whether the whole file is includes."""
        if path in self._open:
            return False
        self._open.append(path)
        text = _COMMENT.sub(" ", self._search.tree[path])
        complete = all(self._line(path, line.strip()) for line in text.splitlines())
        self._open.pop()
        return complete

    def _line(self, path: str, line: str) -> bool:
        if not line or _ONCE.fullmatch(line):
            return True
        include = _INCLUDE.fullmatch(line)
        if include is None:
            return False
        name, quoted = include[1] or include[2], include[2] is not None
        own = self._search.candidates(path, name)
        if quoted and own:
            if own[0] != f"{SOURCE}/{GENERATED_HEADER}":
                return self.file(own[0])
            self._add(_REGISTRATION)
            return True
        if own or not _KNOWN.fullmatch(name):
            return False
        self._add(f"<{name}>")
        return True

    def _add(self, header: str) -> None:
        if header not in self._found:  # they are guarded: the second time changes nothing
            self._found.append(header)


class PrecompiledHeaders:
    """The precompiled headers of one cache; several processes may use it at once."""

    def __init__(self, cache: Path, toolchain: Toolchain, sandbox: Sandbox) -> None:
        self._root = cache / "headers"
        self._toolchain = toolchain
        self._sandbox = sandbox

    def directory(self, unit: Unit, layout: Layout) -> Path | None:
        """What g++ is to search first for `unit`; None where there is nothing for it.

        That of the stable ABI (3 s, 77 MB) is made at once, so that the second project of a run has it.
        Any other is made when it has been wanted in vain as often as pays for it: many students begin
        their files in ways of their own.
        """
        if unit.language != "cxx" or not all(_HARMLESS_FLAG.match(flag) for flag in unit.flags):
            return None
        headers = leading_headers(unit, layout)
        if not headers:
            return None
        registration = next(f.text for f in layout.tree if f.path == f"{SOURCE}/{GENERATED_HEADER}")
        argv = header_argv(layout, self._toolchain)
        key = digest_of([_RECIPE, self._toolchain.facts(layout.target), argv, headers, registration])
        place = self._root / key[:2] / key
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            light = all(_STABLE_ABI.match(header) for header in headers)
            if not light and _wanted(place.with_suffix(".wanted")) <= _WANTED_IN_VAIN:
                return None
            with FileLock(place.with_suffix(".lock")):
                if not place.is_dir():
                    self._make(place, headers, registration, argv, layout)
        if not place.is_dir():
            return None
        touch(place)
        usable = (place / _first(headers)).is_file() and not _shadowed(unit, layout, place)
        return place if usable else None

    def _make(
        self, place: Path, headers: tuple[str, ...], registration: str, argv: tuple[str, ...], layout: Layout
    ) -> None:
        """An entry without files says that g++ refused: it is not tried again."""
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
        try:
            fresh.chmod(0o755)
            status = self._compile(fresh / "out", headers, registration, argv, layout)
            if status not in {"ok", "nonzero"}:  # a busy or small machine: later, perhaps
                shutil.rmtree(fresh, ignore_errors=True)
                place.with_suffix(".wanted").unlink(missing_ok=True)
                return
            if status == "ok":
                first = fresh / _first(headers)
                first.parent.mkdir(parents=True, exist_ok=True)
                _join(sorted(fresh.glob("out/header/piece-*")), first.with_name(f"{first.name}.gch"))
                # g++ takes the first directory that has either; where it may not use the one that is
                # precompiled, this leads it to the real header.
                first.write_text(f"#include_next {headers[0]}\n")
                (fresh / "out/header" / _DEPENDENCIES).rename(fresh / _DEPENDENCIES)
            shutil.rmtree(fresh / "out", ignore_errors=True)
            fresh.rename(place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        make_room((e for e in self._root.glob("??/*") if e.is_dir()), _ROOM_BYTES)

    def _compile(
        self, out: Path, headers: tuple[str, ...], registration: str, argv: tuple[str, ...], layout: Layout
    ) -> Status:
        """Leaves the precompiled header in pieces, and what it was made of; how that ended."""
        with owned_folder("header") as name:
            (Path(name) / "first.h").write_text("".join(f"#include {header}\n" for header in headers))
            (Path(name) / "registration.h").write_text(registration)
            script = (
                f'cd "$0" && "$@" "-ffile-prefix-map=$PWD=." -MD -MF {_DEPENDENCIES} -x c++-header'
                f" -c first.h -o whole && split -b {_PIECE} -d whole piece-"
            )
            job = Job(
                role="build",
                argv=["/bin/sh", "-c", script, "{scratch}/header", *argv],
                limits=_LIMITS,
                inputs={"header": Path(name)},
                readable=self._toolchain.readable(layout.target),
                environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            )
            process = self._sandbox.start(job)
            try:
                facts = process.wait()
                if facts is None or facts.status != "ok":
                    return "sandbox_error" if facts is None else facts.status
                process.collect([f"header/{_DEPENDENCIES}"], out)
                for number in range(_MOST_PIECES):
                    process.collect([f"header/piece-{number:02}"], out)
            except CollectError:
                return "disk_limit"
            finally:
                process.close()
        left = [out / "header/piece-00", out / "header" / _DEPENDENCIES]
        return "ok" if all(file.is_file() for file in left) else "sandbox_error"


def _wanted(file: Path) -> int:
    """How often it has been wanted, this time included: one byte each."""
    with file.open("ab") as stream:
        stream.write(b".")
        return stream.tell()


def _join(pieces: list[Path], whole: Path) -> None:
    with whole.open("wb") as sink:
        for piece in pieces:
            with piece.open("rb") as source:
                shutil.copyfileobj(source, sink, 1 << 20)
            piece.unlink()


def _shadowed(unit: Unit, layout: Layout, place: Path) -> bool:
    """A header in one of the unit's own directories would take the place of one that is precompiled."""
    names = Search({file.path: file.text for file in layout.tree}, unit).shadowing().values()
    used = (place / _DEPENDENCIES).read_text(errors="replace").split()
    return any(path.endswith(f"/{name}") for name in names for path in used)


def _first(headers: tuple[str, ...]) -> str:
    return headers[0].strip("<>")
