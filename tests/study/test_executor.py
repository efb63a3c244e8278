"""Running jobs in threads."""

from __future__ import annotations

import threading

import pytest

from harness.study.executor import LocalExecutor


def test_every_job_is_done_once() -> None:
    """Results come back as they finish, all of them."""
    assert sorted(LocalExecutor(3).map(lambda n: n * n, range(20))) == [n * n for n in range(20)]


def test_threads_outlive_the_queue() -> None:
    """A thread without work stays until the last job is done: its processes would die with it."""
    started: list[threading.Thread] = []
    release = threading.Event()

    def job(number: int) -> bool:
        if number == 0:
            started.append(threading.current_thread())
            return True
        # Job 0's thread has nothing left to do by now; it must still be there.
        release.wait(0.3)
        return started[0].is_alive()

    assert all(LocalExecutor(2).map(job, [0, 1]))


def test_a_failure_comes_out_and_starts_nothing_more() -> None:
    """The exception of a job is raised, and jobs behind it are not begun."""
    begun: list[int] = []

    def job(number: int) -> None:
        begun.append(number)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(LocalExecutor(1).map(job, range(5)))
    assert begun == [0]
