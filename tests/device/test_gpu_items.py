"""The session of `make gpu-check`: order, budget, abort, resuming, and what it writes; with made-up items."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.errors import UsageError
from tests.fakes.nvml import WHOLE, install_fake_nvml
from tests.gpu import test_sandboxes as items
from tests.gpu.stand_in import StandIn
from tools.gpu_results import Entry, Ledger

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
EVIL = r"x |\n| hang/docker | fine | passed | <script> \x1b[2J [a](b) `c` |"
MADE_UP = """
import pytest

@pytest.mark.gpu(estimate_s=40.0, rank=2)
def test_long(benchmark): benchmark.pedantic(int, rounds=3)

@pytest.mark.gpu(estimate_s=1.0)
@pytest.mark.parametrize("n", [pytest.param(7, marks=pytest.mark.gpu(rank=9)),
                               pytest.param(8, marks=pytest.mark.gpu(rank=1))])
def test_short(n, facts, benchmark):
    '''It is
    short.

    More of it.'''
    facts.update(n=n, none=None)
    if n == 8: OUTCOME

@pytest.mark.gpu(estimate_s=1.0, rank=0, essential=True)
def test_first(facts): FIRST
"""


class Session:
    """`make gpu-check` in a folder of its own, on a GPU that only NVML knows."""

    def __init__(self, pytester: pytest.Pytester, results: Path) -> None:
        self.pytester, self.results = pytester, results

    def run(
        self, *words: str, outcome: str = "pass", first: str = "pass", own_process: bool = False
    ) -> list[str]:
        """The items that ran, in order, and `code N`."""
        self.pytester.makepyfile(test_made_up=MADE_UP.replace("OUTCOME", outcome).replace("FIRST", first))
        before = signal.getsignal(signal.SIGTERM)
        command = ("-p", "tests.gpu.conftest", "-v", "-p", "no:hypothesispytest", "-W", "ignore")
        runs = self.pytester.runpytest_subprocess if own_process else self.pytester.runpytest_inprocess
        done = runs(*command, "--results", str(self.results), *words)
        signal.signal(signal.SIGTERM, before)
        self.said = done.stdout.str() + done.stderr.str()
        ran = re.findall(r"::test_(\S+) (?:PASSED|FAILED|SKIPPED \(no engine\))", self.said)
        return [*ran, f"code {int(done.ret)}"]

    @property
    def entries(self) -> dict[str, Entry]:
        """What is recorded, by name."""
        (path,) = self.results.glob("made-up-h200-*.json")
        return {one["name"]: Entry.model_validate(one) for one in json.loads(path.read_text())["entries"]}

    @property
    def table(self) -> str:
        """The Markdown beside it."""
        (path,) = self.results.glob("made-up-h200-*.md")
        return path.read_text()


@pytest.fixture
def session(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    state = tmp_path / "state"
    state.mkdir()
    install_fake_nvml(monkeypatch, state)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # it switches benchmarks off
    return Session(pytester, tmp_path / "results")


def test_items_run_by_rank_once_and_what_does_not_fit_gives_way(session: Session) -> None:
    """A smaller item runs in its place; the next session runs what is owed, or what `-k` names."""
    assert session.run("--budget-s", "30") == ["first", "short[8]", "short[7]", "code 0"]
    assert "owed, run it again: long" in session.said
    assert session.entries["short/8"].facts == {"n": 8, "none": None}
    assert session.entries["short/8"].proves == "It is short."
    assert "| short/7 | It is short. | passed | n 7; none not measured |" in session.table
    assert session.run() == ["long", "code 0"]
    (timings,) = session.results.glob("timings/made-up-h200-*.json")
    assert len(json.loads(timings.read_text())["benchmarks"][0]["stats"]["data"]) == 3
    assert session.run() == ["code 0"]
    assert session.run("-k", "short/7 or first") == ["first", "short[7]", "code 0"]


@pytest.mark.slow
def test_a_failure_is_recorded_with_its_facts_and_stays_one(session: Session) -> None:
    """Made harmless where it is shown, until the item passes; an essential one ends the session."""
    assert session.run(outcome=f"pytest.fail({EVIL!r})")[-2:] == ["short[7]", "code 1"]
    assert session.entries["short/8"].facts["n"] == 8 and "| FAILED |" in session.table
    assert not any(line.startswith("| hang/docker") for line in session.table.splitlines())
    assert "\x1b" not in session.table and r"\<script\>" in session.table
    assert session.run() == ["code 1"] and "failed: short/8" in session.said
    assert session.run("-k", "short/8") == ["short[8]", "code 0"]
    assert session.run("-k", "first or long", first="raise OSError('no memory')") == ["first", "code 2"]
    assert "first failed, so nothing else can be measured: OSError: no memory" in session.said
    assert session.run() == ["first", "code 0"]


def test_what_this_machine_lacks_is_no_failure_and_is_tried_again(session: Session) -> None:
    """A sandbox may have been installed since."""
    for _ in range(2):
        assert "short[8]" in session.run("-k", "short/8", outcome="pytest.skip('no engine')")
        assert session.entries["short/8"].status == "not_here"
    every = ["first", "short[8]", "long", "short[7]", "code 0"]
    assert session.run(outcome="pytest.skip('no engine')") == every
    assert session.run()[:1] == ["short[8]"]


@pytest.mark.slow
def test_an_item_that_does_not_end_is_named_and_gives_way(session: Session) -> None:
    """After too long the session ends, with the stacks of all threads; the next one has it last."""
    session.pytester.makeconftest(f"""
from pathlib import Path
import pytest
from tests.fakes.nvml import install_fake_nvml
import tests.gpu.conftest as c

c._STUCK, c._MORE_S = 0.0, 2.0
install_fake_nvml(pytest.MonkeyPatch(), Path({str(session.results.parent / "state")!r}))
""")
    session.run("--budget-s", "9", outcome="__import__('time').sleep(60)", own_process=True)
    assert {name: one.status for name, one in session.entries.items()} == {
        "first": "passed",
        "short/8": "unfinished",
    }
    (stacks,) = session.results.glob("timings/*.stacks.txt")
    assert "in test_short" in stacks.read_text()
    assert session.run() == ["long", "short[7]", "short[8]", "code 0"]


def test_what_failed_runs_again_where_the_code_has_changed(session: Session) -> None:
    """Its report is kept, and its timings, whatever ends the session; what passed stays."""
    failing = "benchmark.pedantic(int, rounds=2); assert n == 1"
    assert session.run("-k", "short/8", outcome=failing) == ["short[8]", "code 1"]
    assert "assert 8 == 1" in str(session.entries["short/8"].trace)
    (lines,) = session.results.glob("timings/*.jsonl")
    assert [len(json.loads(line)["data"]) for line in lines.read_text().splitlines()] == [2]
    assert session.run("--budget-s", "30")[:-1] == ["first", "short[7]"]
    session.pytester.makeconftest("import tests.gpu.conftest as c\nc.code = lambda: 'other'")
    assert session.run("--budget-s", "30") == ["short[8]", "code 0"]


def test_without_a_gpu_or_with_another_one_nothing_is_written(session: Session, tmp_path: Path) -> None:
    """An unknown GPU is a usage error that names those that there are; no driver is said, and no failure."""
    assert session.run("--gpu", "9") == ["code 4"] and WHOLE in session.said
    (tmp_path / "state" / "driver_absent").touch()
    assert session.run() == ["code 0"] and "not measured: no NVIDIA driver" in session.said
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("text", ["{", '{"schema_version": 2}', "\xff"])
def test_a_record_that_cannot_be_read_is_kept_and_named(tmp_path: Path, text: str) -> None:
    """It is never overwritten: it was paid for with time on a GPU."""
    path = tmp_path / "nvidia-h200-2026-01-02.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"2026-01-02.json cannot be continued.*move it away"):
        Ledger.open(tmp_path, "NVIDIA H200", "GPU-a", "2026-01-02", "0.1.0", {})
    assert path.read_text(encoding="latin-1") == text


def test_every_item_is_documented() -> None:
    """docs/gpu.md has a row for each."""
    told = (ROOT / "docs" / "gpu.md").read_text()
    texts = [path.read_text() for path in (ROOT / "tests/gpu").glob("test_*.py")]
    found = re.findall(r"^def test_(\w+)", "\n".join(texts), re.MULTILINE)
    assert len(found) > 12 and [name for name in found if f"| `{name}" not in told] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "xid", "said"),
    [
        ("same_gpu", None, "the judge has GPU 00, a job sees 00112233445566778899aabbccddeeff"),
        ("hang", None, r"to run|before it said|did not say 'running'"),
        ("fault", None, "did not end as cudaErrorIllegalAddress"),
        ("fault", 79, "reported as a fault of the GPU"),
        ("residue", None, "read what another one had left"),
        ("freeze", None, "wrong result"),
    ],
)
def test_a_bad_answer_of_the_probe_fails(name: str, xid: int | None, said: str, tmp_path: Path) -> None:
    """The message says what was seen instead; a GPU that blames itself fails too."""
    with StandIn.opened(tmp_path, tmp_path / "cache") as gpu:
        gpu.bad, gpu.xid = xid is None, xid
        (gpu.state / "events").touch()
        with pytest.raises(pytest.fail.Exception, match=said):
            getattr(items, f"test_{name}")("local", gpu, {})


def set_up(python: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    wheels = folder / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "ANSWER = 42\n")
        head = "carried-1.0.dist-info"
        wheel.writestr(f"{head}/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr(f"{head}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{head}/RECORD", "")
    command = [ROOT / ".ci" / "gpu-setup", folder / "venv", wheels]
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
