"""Finished builds on disk, found by everything that decided them: the whole project, target and toolchain.

An entry appears whole, by one rename, and is never changed afterwards. Nothing smaller than a build is
shared: the text of one file does not tell which files its object depends on.

    <cache>/<key[:2]>/<key>/
      result.json  manifest.json  build.log  build.ninja
      build/<variant>/__init__.py ...     as `kernels` expects a local build; absent for a failed one
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.builder.reuse.room import make_room, touch
from harness.errors import UsageError
from harness.files import directory_atomically
from harness.locks import locked
from harness.records import BuildResult

ROOM_VARIABLE: Final = "LIFTBENCH_CACHE_GIB"
_ROOM_GIB: Final = 10
"""A build is 0.1 to 12 MB: thousands of projects."""
_SHARD: Final = "[0-9a-f][0-9a-f]"


def room_bytes() -> int:
    """What all builds together may take. Raises UsageError where the variable is no number."""
    text = os.environ.get(ROOM_VARIABLE, str(_ROOM_GIB))
    if not text.isdecimal():
        raise UsageError(f"{ROOM_VARIABLE}={text!r}: give a whole number of GiB, such as {_ROOM_GIB}")
    return int(text) << 30


@dataclass(frozen=True)
class Entry:
    """A finished build in the cache."""

    result: BuildResult
    path: Path

    @property
    def log(self) -> Path:
        """What the compilers printed."""
        return self.path / "build.log"

    @property
    def directory(self) -> Path | None:
        """The parent of the variant's package; None for a failed build."""
        return self.path / "build" if self.result.ok else None

    @property
    def library(self) -> bytes | None:
        """The shared library; None for a failed build, and for one that compiled nothing."""
        found = self.directory and next(self.directory.glob("*/*.abi3.so"), None)
        return found.read_bytes() if found else None


class BuildCache:
    """A folder of builds; several processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / key

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Held while `key` is built; whoever waits for it finds the entry afterwards."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        return locked(path.with_suffix(".lock"), "the same build by another process")

    def load(self, key: str) -> Entry | None:
        """The entry, or None when there is none or its bytes are not those that were stored."""
        path = self._path(key)
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
            if manifest != _manifest(path):
                return None
            result = BuildResult.model_validate_json((path / "result.json").read_bytes())
        except (OSError, ValueError, ValidationError):
            return None
        touch(path)
        return Entry(result, path) if result.key == key else None

    def store(self, result: BuildResult, files: Mapping[str, bytes | Path]) -> Entry:
        """Write an entry; call it with the lock held. `files`: path in the entry -> contents."""
        final = self._path(result.key)
        final.parent.mkdir(parents=True, exist_ok=True)
        # What `load` refused is replaced: damaged, or of an older schema.
        with directory_atomically(final) as fresh:
            for name, contents in files.items():
                target = fresh / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(contents, Path):
                    shutil.copyfile(contents, target)
                else:
                    target.write_bytes(contents)
            (fresh / "result.json").write_text(result.model_dump_json(indent=1) + "\n")
            (fresh / "manifest.json").write_text(json.dumps(_manifest(fresh), indent=1) + "\n")
            fresh.chmod(0o755)
        make_room((entry for entry in self._root.glob(f"{_SHARD}/*") if entry.is_dir()), room_bytes())
        return Entry(result, final)


def _manifest(path: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest, and but what Python leaves beside an imported file."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "manifest.json" and file.parent.name != "__pycache__"
    }
