"""The landlock sandbox, with real processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sandboxes.landlock import LandlockBackend
from tests.sandboxes.behaviours import Behaviours, HostFiles, Starter, end_of, why_not

ROOT = Path(__file__).resolve().parents[2]
_REASON = why_not(LandlockBackend)
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.fixture
def backend() -> LandlockBackend:
    """The backend under test."""
    return LandlockBackend()


class TestLandlock(HostFiles, Behaviours):
    """What all backends do."""


def test_programs_of_a_build_work(start: Starter) -> None:
    """A compiler with its many processes, and what it made, run under the rules."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here: apt-get install g++")
    script = (
        "set -e; cd $HOME; echo 'int main() { return 7; }' > a.cpp; g++ -pipe -O1 a.cpp -o a;"
        " ./a || echo code $?; echo x > /dev/null; cat /proc/self/stat > /dev/null || echo no proc"
    )
    facts = end_of(start("", role="build", argv=["/bin/sh", "-c", script], file_bytes=64 << 20))
    assert facts.output.split("\n")[0] == "code 7", facts.output
