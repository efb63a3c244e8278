"""The cache folder: compiler slots over processes, and a size limit that spares what may be in use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.builder.cache import (
    COMPILER_BYTES,
    SIZE_VARIABLE,
    CompilerSlots,
    evict,
    size_limit_bytes,
)
from harness.errors import UsageError

ROOT = Path(__file__).parents[2]
PLENTY = 100 * COMPILER_BYTES


def slots(directory: Path, *, cores: int = 4, memory: int = PLENTY) -> CompilerSlots:
    """On a machine of the test's."""
    return CompilerSlots(directory, cores=lambda: cores, memory=lambda: memory)


def test_a_build_alone_takes_what_it_can_use(tmp_path):
    """As many as it has files, at most one for each core."""
    for wanted, given in ((1, 1), (3, 3), (9, 4), (0, 1)):
        with slots(tmp_path).taken(wanted) as count:
            assert count == given


def test_memory_bounds_them(tmp_path):
    """One compiler may always run; more only where each has its share."""
    for memory, given in ((0, 1), (COMPILER_BYTES, 1), (2 * COMPILER_BYTES, 2), (PLENTY, 4)):
        with slots(tmp_path, memory=memory).taken(4) as count:
            assert count == given


def test_whoever_runs_keeps_a_share(tmp_path):
    """A compiler that has just started has not used its memory yet."""
    with slots(tmp_path, memory=4 * COMPILER_BYTES).taken(2) as first:
        assert first == 2
        with slots(tmp_path, memory=3 * COMPILER_BYTES).taken(2) as second:
            assert second == 1


_HOLDER = """
import sys, time
from pathlib import Path
from harness.builder.cache import CompilerSlots
with CompilerSlots(Path(sys.argv[1]), cores=lambda: 2, memory=lambda: 1 << 40).taken(2):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_process_holds_nothing(tmp_path):
    """Across processes, and even where a holder could not clean up."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    got: list[int] = []

    def take() -> None:
        with slots(tmp_path, cores=2).taken(2) as count:
            got.append(count)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(0.3)
    assert got == []
    holder.kill()
    holder.wait()
    holder.stdout.close()
    thread.join()
    assert got in ([1], [2])  # a process that ends lets go of one after the other
    with slots(tmp_path, cores=2).taken(2) as count:
        assert count == 2


# --- size limit ------------------------------------------------------------------------------

DAY_S = 24 * 3600.0
NOW = 10 * DAY_S


def entry(folder: Path, name: str, size: int, age_s: float) -> Path:
    """An entry of `size` bytes that was last used `age_s` before NOW."""
    place = folder / name
    place.mkdir()
    (place / "data").write_bytes(b"x" * size)
    os.utime(place, (NOW - age_s, NOW - age_s))
    return place


def test_the_longest_unused_goes_first(tmp_path):
    """As many as are needed to fit, and no more."""
    entries = [entry(tmp_path, str(days), 100, days * DAY_S) for days in (2, 3, 4, 5)]
    assert evict(entries, 250, NOW) == 200
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]
    assert evict(entries, 250, NOW) == 0


def test_what_was_used_today_stays(tmp_path):
    """However large it is: a grade may wait for hours between build and timing."""
    young, old = entry(tmp_path, "young", 1000, DAY_S / 2), entry(tmp_path, "old", 10, 2 * DAY_S)
    assert evict([young, old], 100, NOW) == 10
    assert young.is_dir() and not old.exists()


def test_the_size_is_the_users_choice(monkeypatch):
    """In whole GiB; anything else is refused with the variable's name."""
    monkeypatch.setenv(SIZE_VARIABLE, "3")
    assert size_limit_bytes() == 3 << 30
    monkeypatch.setenv(SIZE_VARIABLE, "3G")
    with pytest.raises(UsageError, match=SIZE_VARIABLE):
        size_limit_bytes()
