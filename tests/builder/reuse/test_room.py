"""Cache entries: what was used longest ago goes first, and nothing that may be in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.builder.cache import SIZE_VARIABLE, evict, size_limit_bytes, touch
from harness.errors import UsageError

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


def test_use_counts(tmp_path):
    """Touched now, it is the youngest; one that is gone is no error."""
    old = entry(tmp_path, "old", 10, 9 * DAY_S)
    touch(old)
    touch(tmp_path / "gone")
    assert evict([old], 0) == 0


def test_the_size_is_the_users_choice(monkeypatch):
    """In whole GiB; anything else is refused with the variable's name."""
    monkeypatch.setenv(SIZE_VARIABLE, "3")
    assert size_limit_bytes() == 3 << 30
    monkeypatch.setenv(SIZE_VARIABLE, "3G")
    with pytest.raises(UsageError, match=SIZE_VARIABLE):
        size_limit_bytes()
