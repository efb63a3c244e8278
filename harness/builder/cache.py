"""The cache of finished builds, shared by all processes, and its content keys.

A key covers the whole project, the target and the toolchain. An entry appears by one rename and is never
changed. Nothing smaller than a build is shared, because the text of one file does not tell which files its
object depends on.

    <cache>/<key[:2]>/<key>/
      result.json  manifest.json  build.log
      build/<variant>/__init__.py ...     as `kernels` expects a local build; absent if the build failed
      ptx/<source>.ptx                    for the emulated GPU
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug, UsageError
from harness.files import directory_atomically
from harness.locks import locked
from harness.records import BuildResult, Project, Target, digest_of

RECIPE: Final = 8
"""Part of every key. Raise it if the same project would be built, or its failure reported, differently."""
PTX: Final = "ptx"
SIZE_VARIABLE: Final = "LIFTBENCH_CACHE_GIB"
_DEFAULT_GIB: Final = 10
"""A build has 0.1 to 12 MB, so this is enough for thousands of projects."""
_SHARD: Final = "[0-9a-f][0-9a-f]"
_IN_USE_S: Final = 24 * 3600.0
"""Entries used within the last day are kept: in a long run hours pass between build and timing."""


def build_key(project: Project, target: Target, toolchain: Toolchain) -> str:
    """The content key: everything that decides the bytes of a build."""
    return digest_of([RECIPE, project.digest, target, toolchain.facts(target)])


def size_limit_bytes() -> int:
    """Limit on the size of all builds together. Raises UsageError if the variable is not a number."""
    text = os.environ.get(SIZE_VARIABLE, str(_DEFAULT_GIB))
    if not text.isdecimal():
        raise UsageError(f"{SIZE_VARIABLE}={text!r}: give a whole number of GiB, such as {_DEFAULT_GIB}")
    return int(text) << 30


@dataclass(frozen=True)
class Entry:
    """A finished build in the cache."""

    result: BuildResult
    path: Path

    @property
    def package(self) -> Path | None:
        """The variant's package; None if the build failed."""
        variant = self.result.variant
        return self.path / "build" / variant if self.result.ok and variant is not None else None

    @property
    def ptx(self) -> Path | None:
        """The folder of its kernels' PTX; None where there is none."""
        folder = self.path / PTX
        return folder if folder.is_dir() else None


@dataclass(frozen=True)
class BuildCache:
    """A folder of builds; several processes may use it at once."""

    root: Path

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / key

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Held while `key` is built; a process that waited for it finds the entry."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        return locked(path.with_suffix(".lock"), "the same build by another process")

    def load(self, key: str) -> Entry | None:
        """The entry; None if there is none, or if its bytes have changed."""
        path = self._path(key)
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
            if manifest != _manifest(path):
                return None
            result = BuildResult.model_validate_json((path / "result.json").read_bytes())
        except (OSError, ValueError, ValidationError):
            return None
        with suppress(OSError):  # a read-only cache, or an entry that another process removes
            os.utime(path)
        return Entry(result, path) if result.key == key else None

    def store(self, result: BuildResult, files: Mapping[str, bytes]) -> Entry:
        """Write an entry with `files` (path in the entry -> contents); the caller holds the lock."""
        final = self._path(result.key)
        final.parent.mkdir(parents=True, exist_ok=True)
        # An entry that `load` refused, damaged or of an older schema, is replaced.
        with directory_atomically(final) as fresh:
            for name, contents in files.items():
                target = fresh / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(contents)
            (fresh / "result.json").write_text(result.model_dump_json(indent=1) + "\n")
            (fresh / "manifest.json").write_text(json.dumps(_manifest(fresh), indent=1) + "\n")
            fresh.chmod(0o755)
        evict((entry for entry in self.root.glob(f"{_SHARD}/*") if entry.is_dir()), size_limit_bytes())
        return Entry(result, final)

    def packed(self, key: str) -> str | None:
        """The entry as a tar archive in base64; None if there is none."""
        entry = self.load(key)
        if entry is None:
            return None
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w:gz", compresslevel=1) as archive:
            archive.add(entry.path, ".", filter=lambda one: None if "__pycache__" in one.name else one)
        return base64.b64encode(held.getvalue()).decode()

    def unpack(self, key: str, archive: str) -> None:
        """Keep a packed entry, unless it is here. HarnessBug if it is damaged, or not that of `key`."""
        with self.lock(key):
            if self.load(key) is not None:
                return
            try:
                held = io.BytesIO(base64.b64decode(archive))
                with (
                    directory_atomically(self._path(key)) as fresh,
                    tarfile.open(fileobj=held, mode="r:gz") as packed,
                ):
                    packed.extractall(fresh, filter="data")
                    fresh.chmod(0o755)
            except (tarfile.TarError, ValueError, EOFError, zlib.error) as error:
                raise HarnessBug(f"a build from another machine cannot be unpacked: {error}") from error
            if self.load(key) is None:
                shutil.rmtree(self._path(key))
                raise HarnessBug("a build from another machine is damaged, or of another project")


def _manifest(path: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest and Python's byte code."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "manifest.json" and file.parent.name != "__pycache__"
    }


def evict(entries: Iterable[Path], limit_bytes: int, now: float | None = None) -> None:
    """Remove the least recently used entries above `limit_bytes`, but none used within the day before `now`
    (seconds since the epoch)."""
    oldest = (time.time() if now is None else now) - _IN_USE_S
    ranked = sorted(map(_measured, entries), reverse=True)
    kept = 0
    for used_at, size, entry in ranked:
        kept += size
        if kept > limit_bytes and used_at < oldest:
            doomed = entry.with_name(f".old-{entry.name}")
            with suppress(OSError):
                entry.rename(doomed)  # first, so that no process finds half an entry
                shutil.rmtree(doomed, ignore_errors=True)
            kept -= size


def _measured(entry: Path) -> tuple[float, int, Path]:
    """Time of the last use, size in bytes, and the entry; zeros if another process removes it."""
    with suppress(OSError):
        sizes = (file.lstat().st_size for file in entry.rglob("*") if not file.is_dir())
        return entry.stat().st_mtime, sum(sizes), entry
    return 0.0, 0, entry
