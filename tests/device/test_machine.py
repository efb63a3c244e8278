"""Who may use the machine when."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.device.machine import Phases, QuietLock, judge_and_worker_cpus, pinned

LONG_S = 20


def run_all(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()


def test_timing_waits_until_all_have_worked() -> None:
    """Four trials build and check first, and only then is the first of them timed."""
    phases, log = Phases(), []
    together = threading.Barrier(4)

    def trial() -> None:
        with phases.work():
            together.wait(LONG_S)
            log.append("worked")
        with phases.timing():
            log.append("timed")

    run_all([trial] * 4)
    assert log == ["worked"] * 4 + ["timed"] * 4


def test_nobody_works_while_others_are_timed() -> None:
    """A new trial waits for the end of the timing phase, and is let in then."""
    phases, log = Phases(), []
    timing, may_end = threading.Event(), threading.Event()

    def timed() -> None:
        with phases.timing():
            timing.set()
            assert may_end.wait(LONG_S)
            log.append("timed")

    def late() -> None:
        assert timing.wait(LONG_S)
        threading.Timer(0.1, may_end.set).start()
        with phases.work():
            log.append("worked")

    run_all([timed, late])
    assert log == ["timed", "worked"]


@pytest.mark.parametrize(
    ("cpus", "siblings", "chosen"),
    [
        ("0", None, None),
        ("0,1", None, (0, 1)),
        ("0,1", "0-1", (0, 1)),
        ("0,1,2", None, (1, 2)),
        ("0,1,2,3", "2-3", (1, 3)),  # numbered by core
        ("0,1,2,3", "1,3", (2, 3)),  # numbered by thread
        ("0,1,2", "1-2", (0, 2)),  # CPU 0 rather than the worker's own core
        ("4,6,9", "4,9", (6, 9)),
        ("0,2,5", "nonsense", (2, 5)),
    ],
)
def test_judge_and_worker_have_cores_apart_from_interrupts(
    tmp_path: Path, cpus: str, siblings: str | None, chosen: tuple[int, int] | None
) -> None:
    """Two physical cores come first, then that the judge is not on CPU 0; one CPU cannot be shared out."""
    allowed = [int(cpu) for cpu in cpus.split(",")]
    if siblings is not None:
        folder = tmp_path / f"cpu{max(allowed)}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    expected = (None, None) if chosen is None else tuple(frozenset([cpu]) for cpu in chosen)
    assert judge_and_worker_cpus(allowed, tmp_path) == expected


def test_pinning_is_undone() -> None:
    """The judge is pinned while it measures, and free again afterwards, also after an error."""
    before = os.sched_getaffinity(0)
    one = frozenset([min(before)])
    with pytest.raises(KeyError), pinned(one):
        assert os.sched_getaffinity(0) == one
        raise KeyError
    assert os.sched_getaffinity(0) == before


def test_exclusive_keeps_shared_holders_out_across_locks(tmp_path: Path) -> None:
    """Two lock objects on one folder (two processes) exclude each other; two readers do not."""
    one, two = QuietLock(tmp_path, "cpu"), QuietLock(tmp_path, "cpu")
    log: list[str] = []
    held, may_end = threading.Event(), threading.Event()

    def writer() -> None:
        with one.exclusive():
            held.set()
            assert may_end.wait(LONG_S)
            log.append("exclusive")

    def reader() -> None:
        assert held.wait(LONG_S)
        threading.Timer(0.1, may_end.set).start()
        with two.shared():
            log.append("shared")

    run_all([writer, reader])
    assert log == ["exclusive", "shared"]
    with one.shared(), two.shared():
        pass
