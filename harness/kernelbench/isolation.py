"""Runs what executes problem files in a process of its own: our end of isolated.py.

An answer, or a reason, comes back within the deadline.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from harness.errors import HarnessBug

WALL_S = 600.0
"""For one problem: recurrent networks are looked at step by step, over a minute for KernelBench's largest on
the two-core machine that this was written on."""
MEMORY_BYTES = 12 << 30
"""Of private memory, where a problem is looked at on the host."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_GRACE_S = 60.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Refused(Exception):
    """The problem could not be looked at, or cannot be a task; the message says why."""

    def __init__(self, message: str, *, unfit: bool = False, missing: str | None = None) -> None:
        """`unfit`: the file is at fault, so that another look finds the same; `missing`: a module that it
        needs and that is not installed."""
        super().__init__(message)
        self.unfit = unfit
        self.missing = missing


class Isolation:
    """A helper process that does one request after another, each in a fork of its own."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # Level 4 of KernelBench asks a hub for models at import: nothing is downloaded.
        environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.kernelbench.isolated"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
            start_new_session=True,
        )

    def ask(self, what: str, wall_s: float = WALL_S, **given: Any) -> dict[str, Any]:
        """The answer of isolated.py's function `what`. Raises Refused with a reason, HarnessBug where the
        helper itself is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"what": what, "wall_s": wall_s, "memory_bytes": MEMORY_BYTES, "given": given}
        watchdog = threading.Timer(wall_s + _GRACE_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise HarnessBug("the process that looks at KernelBench problems is gone")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise Refused(
                str(answer["refused"]), unfit=answer.get("unfit", False), missing=answer.get("missing")
            )
        found: dict[str, Any] = answer["ok"]
        return found

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def in_parallel(
    items: Sequence[Item], work: Callable[[Item, Isolation], Answer], processes: int | None = None
) -> list[Answer]:
    """`work` on every item, over the cores, in order; each core has a helper process of its own."""
    count = min(len(items), processes or len(os.sched_getaffinity(0)))
    if count == 0:
        return []
    own = threading.local()
    helpers: list[Isolation] = []

    def begin() -> None:
        own.helper = Isolation()
        helpers.append(own.helper)

    try:
        with ThreadPoolExecutor(count, initializer=begin) as pool:
            return list(pool.map(lambda item: work(item, own.helper), items))
    finally:
        for helper in helpers:
            helper.close()
