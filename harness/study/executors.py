"""Where trials run: in threads of this process (local); other executors plug into the same seam.

Results come back as they finish, and a job's exception comes out of the iterator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from harness.errors import UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Executor(Protocol):
    """Runs jobs."""

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """Results in the order in which they finish."""
        ...

    def abandon(self) -> None:
        """Start nothing more; jobs that run are not waited for."""
        ...


def make_executor(name: str, workers: int) -> Executor:
    """The executor of that name. Raises UsageError when there is none."""
    if name != "local":
        raise UsageError(f"no executor {name!r}; there is: local")
    from harness.study.pools import LocalExecutor

    return LocalExecutor(workers)
