"""Objects that projects share: what one compilation made, kept under the digest of all that decided it.

Owns: the key of an object, its place on disk, and the lock that keeps it from being compiled twice.
Does not own: which files a unit can see (reachable.py), compiling (compiling.py).
Invariant: an entry appears whole, by one rename; its object has the digest that stands beside it.

    <cache>/objects/<key[:2]>/<key>/ unit.o  facts.json
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from filelock import FileLock

from harness.atomic import directory_atomically
from harness.builder.flags import compile_argv, object_path
from harness.builder.layout import STUBS, Layout
from harness.builder.reuse.reachable import reachable
from harness.builder.reuse.room import touch
from harness.builder.toolchain import Toolchain
from harness.records import digest_of

OBJECT_RECIPE: Final = 1
"""Part of every key: raise it when the same command would give another object."""
_LOG_BYTES: Final = 64 << 10


class Object(NamedTuple):
    """A compiled unit."""

    path: Path
    log: str
    """What the compiler printed when it was made."""


def object_keys(layout: Layout, toolchain: Toolchain) -> dict[str, str]:
    """Path of every object in the build tree -> its key."""
    texts = {file.path: file.text for file in layout.tree}
    # torch's headers include the stand-ins, which no text of the project shows.
    ours = {path for path in texts if path.startswith(f"{STUBS}/")}
    facts = toolchain.facts(layout.target)
    keys: dict[str, str] = {}
    for unit in layout.units.units:
        files = [(path, texts[path]) for path in sorted({*reachable(unit, layout).paths, *ours})]
        argv = compile_argv(unit, layout, toolchain)
        keys[object_path(unit)] = digest_of([OBJECT_RECIPE, facts, argv, files])
    return keys


class ObjectStore:
    """A folder of objects; several processes may use it at once."""

    def __init__(self, cache: Path) -> None:
        """`cache`: the build cache's folder."""
        self._root = cache / "objects"

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / key

    @contextmanager
    def claimed(self, keys: Mapping[str, str]) -> Iterator[dict[str, Object]]:
        """The objects of `keys` (path -> key) that are there; the others are ours to make meanwhile.

        Whoever else wants one of those waits. Locks are taken in one order everywhere, so that nobody
        waits in a circle.
        """
        found = self._load(keys)
        with ExitStack() as stack:
            for key in sorted({key for path, key in keys.items() if path not in found}):
                place = self._path(key)
                place.parent.mkdir(parents=True, exist_ok=True)
                lock = FileLock(place.with_suffix(".lock"))
                lock.acquire()
                if self.load(key) is None:
                    stack.callback(lock.release)
                else:
                    lock.release()
            yield self._load(keys)

    def _load(self, keys: Mapping[str, str]) -> dict[str, Object]:
        loaded = ((path, self.load(key)) for path, key in keys.items())
        return {path: found for path, found in loaded if found is not None}

    def load(self, key: str) -> Object | None:
        """The object, or None when there is none or its bytes are not those that were stored."""
        place = self._path(key)
        try:
            facts = json.loads((place / "facts.json").read_bytes())
            if facts["sha256"] != hashlib.sha256((place / "unit.o").read_bytes()).hexdigest():
                return None
            touch(place)
            return Object(place / "unit.o", str(facts["log"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, key: str, compiled: bytes, log: bytes) -> None:
        """Keep an object; call it while it is claimed."""
        final = self._path(key)
        final.parent.mkdir(parents=True, exist_ok=True)
        with directory_atomically(final) as fresh:  # in place of what `load` refused as damaged
            (fresh / "unit.o").write_bytes(compiled)
            text = log[:_LOG_BYTES].decode(errors="replace")
            facts = {"sha256": hashlib.sha256(compiled).hexdigest(), "log": text}
            (fresh / "facts.json").write_text(json.dumps(facts) + "\n")
