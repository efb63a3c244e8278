"""The plugin of gpu-check: order, budget, resuming, and what it writes; with made-up checks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from harness.errors import UsageError
from tests.fakes.nvml import WHOLE, install_fake_nvml
from tools.gpu_check.__main__ import main
from tools.gpu_check.plugin import NOT_YET, Ledger

HEAD = """
import pytest
from tools.gpu_check.plugin import gpu
"""
_numbers = itertools.count()
EVIL = r"x |\n| hang/docker | fine | passed | <script> \x1b[2J [a](b) `c` |"


class Session:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.checks, self.out, self.log = folder / "checks", folder / "results", folder / "log"
        self.checks.mkdir()
        self._capsys = capsys
        self._text = HEAD

    def check(
        self, name: str, act: str = "facts['seen'] = 1", *, estimate_s: float = 1.0, rank: int = 0
    ) -> None:
        self._text += textwrap.dedent(f"""
            @gpu("{name}", "{name} works", estimate_s={estimate_s}, rank={rank})
            def test_{name.replace("/", "_")}(facts):
                with open("{self.log}", "a") as log:
                    log.write("{name} ")
                {act}
            """)

    def run(self, *arguments: str) -> int:
        self.log.write_text("")
        for old in self.checks.glob("*.py"):
            old.unlink()
        # A module of its own for every session of this process.
        (self.checks / f"check_{next(_numbers)}.py").write_text(self._text)
        code = main(["--out", str(self.out), *arguments], self.checks)
        self.said = self._capsys.readouterr().out
        return code

    @property
    def measured(self) -> list[str]:
        return self.log.read_text().split()

    @property
    def table(self) -> str:
        (path,) = self.out.glob("made-up-h200-*.md")
        return path.read_text()

    @property
    def recorded(self) -> dict[str, dict[str, object]]:
        (path,) = self.out.glob("made-up-h200-*.json")
        return {entry["name"]: entry for entry in json.loads(path.read_text())["entries"]}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Session:
    state = tmp_path / "state"
    state.mkdir()
    install_fake_nvml(monkeypatch, state)
    return Session(tmp_path, capsys)


@pytest.mark.slow
def test_checks_run_by_rank_once_and_are_written_down(session: Session) -> None:
    """A second session asks only what the first one left, unless told to ask anew."""
    session.check("b", rank=1)
    session.check("a", "facts.update(xids=None, mig=False, x_s=0.123456)")
    assert session.run() == 0
    assert session.measured == ["a", "b"]
    assert session.recorded["b"]["facts"] == {"seen": 1}
    assert "| a | a works | passed | xids not measured; mig no; x_s 0.1235 |" in session.table
    assert "Reached: 2 passed." in session.table and "driver " in session.table
    session.check("c")
    assert session.run() == 0 and session.measured == ["c"]
    assert "a: passed before" in session.said
    assert session.run("--again", "a") == 0 and session.measured == ["a"]


def test_none_is_begun_that_would_not_fit(session: Session) -> None:
    """It stops there, so that the order stays the order of importance, and says what is owed: no failure."""
    session.check("a", rank=0)
    session.check("b", estimate_s=40, rank=1)
    session.check("c", rank=2)
    assert session.run("--budget-s", "30") == 0
    assert session.measured == ["a"]
    assert "b: needs about 40 s and " in session.said and "owed, run it again: b, c" in session.said
    assert f"| b | b works | {NOT_YET} |" in session.table


@pytest.mark.slow
def test_a_failure_is_written_down_and_the_next_check_runs(session: Session) -> None:
    """With its error and its facts, made harmless; exit code 3 until it is measured anew and passes."""
    session.check("short", f"facts['words'] = 7; pytest.fail({EVIL!r})", rank=0)
    session.check("broken", "raise OSError('no engine')", rank=1)
    session.check("good", rank=2)
    assert session.run() == 3
    assert session.measured == ["short", "broken", "good"]
    assert session.recorded["broken"]["error"] == "OSError: no engine"
    assert session.recorded["short"]["facts"] == {"words": 7}
    assert "failed: short, broken" in session.said and "1 passed, 2 FAILED" in session.table
    assert not any(line.startswith("| hang/docker") for line in session.table.splitlines())
    assert "\x1b" not in session.table and r"\<script\>" in session.table
    assert session.run() == 3 and session.measured == []


@pytest.mark.slow
def test_what_this_machine_lacks_is_no_failure_and_is_asked_again(session: Session) -> None:
    """A sandbox may have been installed since."""
    session.check("hang/docker", "pytest.skip('no engine answers')")
    assert session.run() == 0
    assert "| not on this machine | no engine answers |" in session.table
    assert session.run() == 0 and session.measured == ["hang/docker"]


def test_unknown_names_are_usage_errors(session: Session) -> None:
    """An unknown check or GPU is refused, with those that there are, before anything is measured."""
    session.check("a")
    assert session.run("--again", "x") == 2
    assert "no check is called x; there are: a" in session.said and session.measured == []
    assert session.run("--device", "9") == 2 and WHOLE in session.said


@pytest.mark.parametrize("text", ["{", '{"schema_version": 2}', "\xff"])
def test_a_record_that_cannot_be_read_is_kept_and_named(tmp_path: Path, text: str) -> None:
    """It is never overwritten: it was paid for with time on a GPU."""
    path = tmp_path / "nvidia-h200-2026-01-02.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"2026-01-02.json cannot be continued.*move it away"):
        Ledger.open(tmp_path, "NVIDIA H200", "GPU-a", "2026-01-02", "0.1.0", {})
    assert path.read_text(encoding="latin-1") == text


@pytest.mark.slow
def test_without_a_gpu_it_says_so_and_what_is_owed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0, and no record that could be taken for one; the documentation lists every question."""
    monkeypatch.setattr("tools.gpu_check.__main__.open_nvml", lambda: None)
    assert main(["--out", str(tmp_path / "results")]) == 0
    said = capsys.readouterr().out
    assert "not measured: no NVIDIA driver on this machine" in said
    assert not (tmp_path / "results").exists()
    names = said.partition("machine with a GPU: ")[2].strip().split(", ")
    assert names[:3] == ["machine", "transport", "end_to_end/l1/softmax"] and len(set(names)) == len(names)
    assert names.index("ceilings") < min(names.index(n) for n in names if n.startswith("expert/"))
    assert {"hang/docker", "zoo/gpu_fills_the_memory", "zoo/honest_gpu_graphs"} <= set(names)
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()
    for name in names:
        assert f"| `{name.partition('/')[0]}" in text, name


def set_up(python: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    wheels = folder / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "ANSWER = 42\n")
        head = "carried-1.0.dist-info"
        wheel.writestr(f"{head}/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr(f"{head}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{head}/RECORD", "")
    command = [Path(__file__).parents[2] / ".ci" / "gpu-setup", folder / "venv", wheels]
    environment = {**os.environ, "PYTHON": str(python), "PIP_NO_CACHE_DIR": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    """Before anything is made; the message says how to name another."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    done = set_up(bare, tmp_path)
    assert done.returncode != 0
    assert "has no torch: name the Python that has one, make PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_wheels_and_torch_are_there_without_network(tmp_path: Path) -> None:
    """What was carried comes from the wheels, torch from the Python that has it, though that is a venv's."""
    pytest.importorskip("torch", reason="needs torch (pip install torch)")
    done = set_up(sys.executable, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "build for sm_90" in done.stdout
    code = "import carried, torch; print(carried.__file__, torch.__file__)"
    python = tmp_path / "venv" / "bin" / "python"
    seen = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert seen[0].startswith(str(tmp_path))
    assert not seen[1].startswith(str(tmp_path))
