"""The helper processes that execute problem files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import HarnessBug
from harness.kernelbench.isolation import Isolation
from harness.kernelbench.problems import Unfit
from tests.fakes.kernelbench import problem

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    """One server for all tests, started with a key in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "secret")
        made = Isolation()
        yield made
        made.close()


def _fine(folder: Path) -> Path:
    (folder / "2_fine.py").write_text(problem("return x + 1"))
    return folder / "2_fine.py"


def test_a_file_that_hangs_is_killed(isolation: Isolation, tmp_path: Path) -> None:
    """At its deadline; the next file is inspected as if nothing had happened."""
    (tmp_path / "1_hangs.py").write_text("while True:\n    pass\n")
    with pytest.raises(Unfit, match="took longer than 2 s"):
        isolation.ask("inspect", wall_s=2.0, path=str(tmp_path / "1_hangs.py"))
    assert isolation.ask("inspect", path=str(_fine(tmp_path)))["kind"] == "elementwise"


def test_a_file_that_stops_the_server_is_no_hang(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed some time after the deadline."""
    monkeypatch.setattr("harness.kernelbench.isolation._GRACE_S", 1.0)
    (tmp_path / "1_stops.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n")
    isolation.ask("inspect", path=str(_fine(tmp_path)))  # the server is up
    with pytest.raises(HarnessBug, match="died"):
        isolation.ask("inspect", wall_s=1.0, path=str(tmp_path / "1_stops.py"))


def test_a_file_sees_no_keys(isolation: Isolation, tmp_path: Path) -> None:
    """The environment is an allow-list."""
    looks = tmp_path / "1_looks.py"
    looks.write_text("import os\nraise RuntimeError(os.environ.get('OPENAI_API_KEY', 'nothing there'))\n")
    with pytest.raises(Unfit, match="nothing there"):
        isolation.ask("inspect", path=str(looks))


def test_a_file_that_prints_does_not_answer_for_us(isolation: Isolation, tmp_path: Path) -> None:
    """Its standard output is discarded."""
    prints = tmp_path / "1_prints.py"
    prints.write_text("print('{\"ok\": {}}', flush=True)\n" + problem("return x + 1"))
    assert isolation.ask("inspect", path=str(prints))["flops"] == 0


def test_the_server_ends_with_its_client(tmp_path: Path) -> None:
    """A server whose input is closed in the middle of a request does not wait for the deadline."""
    (tmp_path / "1_hangs.py").write_text("while True:\n    pass\n")
    given = {"path": str(tmp_path / "1_hangs.py")}
    request = {"function": "inspect", "wall_s": 500, "memory_bytes": 8 << 30, "given": given}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness.kernelbench.isolation"],
        input=json.dumps(request) + "\n",
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
