"""Writes a text file, a line of one, or a directory, whole or not at all.

When it returns, the new contents are in place; nothing temporary is left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from harness.errors import UsageError


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old or the new contents, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as sink:
            sink.write(text)
            sink.flush()
            os.fsync(sink.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def append_line(path: Path, line: str) -> None:
    """Add a line to `path`, on disk when this returns; a torn line before it (a crash) keeps to itself."""
    with path.open("ab+") as sink:
        if sink.seek(0, os.SEEK_END):
            sink.seek(-1, os.SEEK_END)
            sink.write(b"" if sink.read(1) == b"\n" else b"\n")
        sink.write(line.encode() + b"\n")
        sink.flush()
        os.fsync(sink.fileno())


@contextlib.contextmanager
def directory_atomically(final: Path) -> Iterator[Path]:
    """A new directory beside `final` to fill; if all went well it takes its place, by one rename."""
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=final.parent))
    try:
        yield fresh
        if final.exists():
            shutil.rmtree(final)
        fresh.rename(final)
    except BaseException:  # Ctrl-C too leaves nothing half done
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def unsafe_path(path: str) -> str | None:
    """Why a path may not be used, or None."""
    if "\\" in path or "\0" in path:
        return "has a backslash or a NUL"
    pure = PurePosixPath(path)
    if pure.is_absolute() or path.startswith("~"):
        return "is absolute"
    if ".." in pure.parts:
        return "leaves the project"
    if len(path) > 200:
        return "is longer than 200 characters"
    return None


def data_directory(kind: str) -> Path:
    """Where `tasks`, `skills`, `kernels_ref` or `demo` lie: beside the package, or inside the wheel."""
    package = Path(__file__).parent
    beside = package.parent / kind
    inside = package / "_data" / kind
    for candidate in (inside, beside):
        if candidate.is_dir():
            return candidate
    raise UsageError(f"liftbench's own {kind}/ folder is missing (looked at {inside} and {beside})")
