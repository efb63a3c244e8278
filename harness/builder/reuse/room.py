"""Keeps a folder of cache entries below a size: what was used last stays.

An entry that was used within the last day is never removed: a grade may be reading it, and in a long run it
may wait for hours between build and timing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_IN_USE_S: Final = 24 * 3600.0


def touch(entry: Path) -> None:
    """Note that `entry` is used now."""
    # A cache that may only be read, or an entry that another process removes: neither matters.
    with suppress(OSError):
        os.utime(entry)


def make_room(entries: Iterable[Path], most_bytes: int, now: float | None = None) -> int:
    """Remove the entries used longest ago until the rest is within `most_bytes`; bytes removed.

    `now`: seconds of the epoch; ours by default.
    """
    limit = (time.time() if now is None else now) - _IN_USE_S
    ranked = sorted(((_used_at(e), _size(e), e) for e in entries), reverse=True)
    kept = removed = 0
    for used_at, size, entry in ranked:
        kept += size
        if kept > most_bytes and used_at < limit:
            _remove(entry)
            kept -= size
            removed += size
    return removed


def _remove(entry: Path) -> None:
    """In two steps, so that nobody finds half an entry."""
    doomed = entry.with_name(f".old-{entry.name}")
    with suppress(OSError):
        entry.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _used_at(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def _size(entry: Path) -> int:
    total = 0
    for directory, _, names in os.walk(entry):
        for name in names:
            with suppress(OSError):
                total += (Path(directory) / name).lstat().st_size
    return total
