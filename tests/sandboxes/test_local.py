"""The local sandbox, with real processes: what it hides, what it kills, and what it says of the end."""

from __future__ import annotations

import os

import pytest

from sandboxes.local import LocalBackend
from tests.sandboxes.behaviours import Behaviours, Starter, end_of

ROOT = os.geteuid() == 0


@pytest.fixture
def backend() -> LocalBackend:
    """The backend under test."""
    return LocalBackend()


class TestLocal(Behaviours):
    """What all backends do."""


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_every_process_has_a_user_of_its_own(start: Starter) -> None:
    """As root, two jobs run as two unprivileged users without groups."""
    code = "import os; print(os.getresuid(), os.getresgid(), os.getgroups())"
    first, second = (end_of(start(code)).output for _ in range(2))
    assert first != second
    for output in (first, second):
        uid = int(output.split(",")[0].strip("("))
        assert uid >= 20_000
        assert output.strip() == f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) []"


def test_memory_that_children_share_counts_once(start: Starter) -> None:
    """Six processes with the same 128 MiB are not out of 384 MiB; the watchdog says what they really use."""
    code = """
import os, time
hoard = bytearray(os.urandom(1 << 20)) * 128
for _ in range(5):
    if os.fork() == 0:
        time.sleep(1.0)
        os._exit(0)
time.sleep(1.5)
"""
    facts = end_of(start(code, memory_bytes=384 << 20))
    assert facts.status == "ok", facts
    assert facts.peak_memory_bytes is not None and 128 << 20 < facts.peak_memory_bytes < 384 << 20
