"""The cache folder: compiler slots over processes, and a size limit that spares what may be in use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from harness.builder.cache import SIZE_VARIABLE, evict, size_limit_bytes
from harness.builder.compiler_slots import (
    COMPILER_BYTES,
    CompilerSlots,
    balloon_bytes,
    grown_bytes,
)
from harness.errors import UsageError

ROOT = Path(__file__).parents[2]
PLENTY = 100 * COMPILER_BYTES


def slots(directory: Path, *, cores: int = 4, memory: int = PLENTY) -> CompilerSlots:
    """On a machine of the test's."""
    return CompilerSlots(directory, cores=lambda: cores, memory=lambda: memory, grow=lambda wanted: None)


@pytest.mark.parametrize(
    ("wanted", "memory", "given"),
    [(1, PLENTY, 1), (9, PLENTY, 4), (0, PLENTY, 1), (4, 0, 1), (4, 2 * COMPILER_BYTES, 2)],
)
def test_files_cores_and_memory_bound_a_build(wanted, memory, given, tmp_path):
    """One compiler may always run; more only with a core and memory for each."""
    with slots(tmp_path, memory=memory).taken(wanted) as count:
        assert count == given


def test_whoever_runs_keeps_a_share(tmp_path):
    """A compiler that has just started has not used its memory yet."""
    first, second = (slots(tmp_path, memory=n * COMPILER_BYTES).taken(2) for n in (4, 3))
    with first as one, second as other:
        assert (one, other) == (2, 1)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("available", "held", "touched", "after"),
    [(12, 50, 0, 12), (3, 0, 0, 3), (3, 50, 10, 40), (3, 4, 7, 7)],
)
def test_memory_that_a_hypervisor_holds_back_is_touched_first(
    available, held, touched, after, caplog, tmp_path
):
    """Where too little is available, as much as is wanted and there is; what was counted is printed."""
    counted, asked = [available], [0]

    def touch(size):
        asked[0] = size // GIB
        counted[0] = after

    memory = partial(grown_bytes, available=lambda: counted[0] * GIB, balloon=lambda: held * GIB, touch=touch)
    taken = CompilerSlots(tmp_path, lambda: 2, lambda: counted[0] * GIB, memory).taken(9)
    with taken as count:
        assert count == min(2, max(1, after // 5))
    assert (asked[0], memory(10 * GIB)) == (touched, after * GIB)
    assert (f"memory: {available}.0 GiB were available, and {after}.0 GiB after" in caplog.text) == bool(
        touched
    )


_TOUCH = """
import resource
from harness.builder.compiler_slots import touch_memory
touch_memory(96 << 20)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_balloon_counts_where_it_gives_way(tmp_path):
    """Its pages are read from the kernel's counters, of older kernels too; touching is real."""
    vmstat, feature = tmp_path / "vmstat", tmp_path / "virtio3" / "features"
    feature.parent.mkdir()
    page = os.sysconf("SC_PAGE_SIZE")
    table = [
        ("01100", "nr_balloon_pages 7\nballoon_inflate 99", 7),
        ("01100", "balloon_inflate 9\nballoon_deflate 4", 5),
        ("01000", "nr_balloon_pages 7", 0),
        ("01100", "nr_free_pages 7", 0),
    ]
    for bits, counters, pages in table:
        feature.write_text(f"{bits}\n")
        vmstat.write_text(f"{counters}\n")
        assert balloon_bytes(vmstat, tmp_path) == pages * page
    assert balloon_bytes(vmstat, tmp_path / "absent") == 0
    done = subprocess.run(
        [sys.executable, "-c", _TOUCH], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) >= 96 << 10


_HOLDER = """
import sys, time
from pathlib import Path
from harness.builder.compiler_slots import CompilerSlots
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
    """As many as are needed to fit; what was used today stays, however large."""
    entries = [entry(tmp_path, str(days), 100, days * DAY_S) for days in (2, 3, 4, 5)]
    evict(entries, 250, NOW)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]
    young = entry(tmp_path, "young", 1000, DAY_S / 2)
    evict([*entries, young], 250, NOW)
    assert [p.name for p in tmp_path.iterdir()] == ["young"]


def test_the_size_is_the_users_choice(monkeypatch):
    """In whole GiB; anything else is refused with the variable's name."""
    monkeypatch.setenv(SIZE_VARIABLE, "3")
    assert size_limit_bytes() == 3 << 30
    monkeypatch.setenv(SIZE_VARIABLE, "3G")
    with pytest.raises(UsageError, match=SIZE_VARIABLE):
        size_limit_bytes()
