"""What executes problem files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.kernelbench.isolation import Isolation, Refused
from tests.fakes.kernelbench import problem

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    """One helper for all tests: each file has a fork of its own."""
    made = Isolation()
    yield made
    made.close()


def test_a_file_that_hangs_is_ended(isolation: Isolation, tmp_path: Path) -> None:
    """At its deadline, and the next file is read as if nothing had been."""
    hangs, fine = tmp_path / "1_hangs.py", tmp_path / "2_fine.py"
    hangs.write_text("while True:\n    pass\n")
    fine.write_text(problem("return x + 1"))
    with pytest.raises(Refused, match="took longer than 2 s"):
        isolation.ask("inspect", wall_s=2.0, path=str(hangs))
    assert isolation.ask("inspect", path=str(fine))["kind"] == "elementwise"


def test_a_file_sees_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is in our environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    looks = tmp_path / "1_looks.py"
    looks.write_text("import os\nraise RuntimeError(os.environ.get('OPENAI_API_KEY', 'nothing there'))\n")
    made = Isolation()
    try:
        with pytest.raises(Refused, match="nothing there"):
            made.ask("inspect", path=str(looks))
    finally:
        made.close()


def test_a_file_that_prints_does_not_answer_for_us(isolation: Isolation, tmp_path: Path) -> None:
    """Its standard output goes nowhere."""
    prints = tmp_path / "1_prints.py"
    prints.write_text("print('{\"ok\": {}}', flush=True)\n" + problem("return x + 1"))
    assert isolation.ask("inspect", path=str(prints))["flops"] == 0


def test_it_ends_with_whoever_asked(tmp_path: Path) -> None:
    """A helper whose input is closed in the middle of a request does not wait for the deadline."""
    hangs = tmp_path / "1_hangs.py"
    hangs.write_text("while True:\n    pass\n")
    given = {"path": str(hangs)}
    request = {"what": "inspect", "wall_s": 500, "memory_bytes": 8 << 30, "given": given}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness.kernelbench.isolated"],
        input=json.dumps(request) + "\n",
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
