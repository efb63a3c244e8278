"""The frame of gpu-check: order, budget, resuming, and what it writes; with made-up items."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from harness.errors import SandboxError, UsageError
from harness.records.gpu_check import Fact
from tools.gpu_check.item import Bench, FellShort, Item, NotHere
from tools.gpu_check.ledger import NOT_YET, Ledger
from tools.gpu_check.runner import Outcome, run_items

NO_BENCH = cast("Bench", None)  # made-up items need none


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Session:
    """A folder for the record, and what was measured and said in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.measured: list[str] = []
        self.said: list[str] = []

    def item(
        self, name: str, act: Callable[[], dict[str, Fact]] | None = None, *, estimate_s: float = 10.0
    ) -> Item:
        """One that takes as long as it is estimated to."""

        def measure(bench: Bench) -> dict[str, Fact]:
            self.measured.append(name)
            self.clock.now_s += estimate_s
            return {"seen": 1} if act is None else act()

        return Item(name, f"{name} works", estimate_s, measure)

    def ledger(self) -> Ledger:
        """Opened anew, as a new process would."""
        return Ledger.open(self.folder, "NVIDIA H200", "GPU-a", "2026-01-02", "0.1.0")

    def run(self, items: list[Item], budget_s: float = 1000.0, again: tuple[str, ...] = ()) -> Outcome:
        """One invocation."""
        self.measured.clear()
        return run_items(
            items,
            NO_BENCH,
            self.ledger(),
            budget_s=budget_s,
            again=again,
            say=self.said.append,
            clock=self.clock,
        )

    @property
    def table(self) -> str:
        return (self.folder / "nvidia-h200-2026-01-02.md").read_text()

    @property
    def recorded(self) -> dict[str, dict[str, object]]:
        text = (self.folder / "nvidia-h200-2026-01-02.json").read_text()
        return {entry["name"]: entry for entry in json.loads(text)["entries"]}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A new one."""
    return Session(tmp_path / "results")


def fail_with(error: Exception) -> Callable[[], dict[str, Fact]]:
    """What an item does that raises."""

    def act() -> dict[str, Fact]:
        raise error

    return act


def test_items_run_in_order_and_are_written_down(session: Session) -> None:
    """One file per GPU and day, and a table beside it."""
    outcome = session.run([session.item("a"), session.item("b")])
    assert outcome == Outcome(failed=(), owed=())
    assert session.measured == ["a", "b"]
    assert session.recorded["a"]["facts"] == {"seen": 1}
    assert session.recorded["a"]["wall_s"] == 10.0
    assert "| a | a works | passed | seen 1 |" in session.table


def test_the_table_says_what_was_reached_and_with_what(session: Session) -> None:
    """Counts of every ending, and the versions that figures depend on; a later session has the last word."""
    items = [session.item("a"), session.item("b", fail_with(FellShort("no"))), session.item("c")]
    session.run(items[:2])
    software = {"driver": "580.1", "torch": "2.11.0+cu130"}
    ledger = Ledger.open(session.folder, "NVIDIA H200", "GPU-a", "2026-01-02", "0.1.0", software)
    ledger.write_table(items)
    assert "Reached: 1 passed, 1 FAILED, 1 not measured yet." in session.table
    assert "driver 580.1, torch 2.11.0+cu130" in session.table


def test_what_was_finished_is_not_measured_again(session: Session) -> None:
    """A second session asks only what the first one left, unless told to ask anew."""
    items = [session.item("a"), session.item("b")]
    session.run(items[:1])
    session.run(items)
    assert session.measured == ["b"]
    session.run(items, again=("a",))
    assert session.measured == ["a"]
    assert list(session.recorded) == ["b", "a"]


def test_none_is_begun_that_would_not_fit(session: Session) -> None:
    """It stops there, so that the order stays the order of importance, and says what is owed."""
    items = [
        session.item("a", estimate_s=30),
        session.item("b", estimate_s=40),
        session.item("c", estimate_s=1),
    ]
    outcome = session.run(items, budget_s=60.0)
    assert session.measured == ["a"]
    assert outcome.owed == ("b", "c")
    assert session.said[-1] == "b: needs about 40 s and 30 s are left: stopping here"
    assert f"| b | b works | {NOT_YET} |" in session.table


def test_an_item_that_fails_is_written_down_and_the_next_one_runs(session: Session) -> None:
    """With its error, and with the facts that it has seen."""
    items = [
        session.item("broken", fail_with(SandboxError("no engine"))),
        session.item("short", fail_with(FellShort("7 words", {"words": 7}))),
        session.item("good"),
    ]
    outcome = session.run(items)
    assert session.measured == ["broken", "short", "good"]
    assert outcome.failed == ("broken", "short")
    assert session.recorded["broken"]["error"] == "SandboxError: no engine"
    assert session.recorded["short"]["facts"] == {"words": 7}
    assert "| short | short works | FAILED | words 7; 7 words |" in session.table


def test_each_answer_is_on_disk_before_the_next_item_begins(session: Session) -> None:
    """A session that is cut off loses only the item that was running."""

    def cut_off() -> dict[str, Fact]:
        assert list(session.recorded) == ["a"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run([session.item("a"), session.item("b", cut_off)])
    assert list(session.recorded) == ["a"]
    assert f"| b | b works | {NOT_YET} |" in session.table


def test_what_this_machine_lacks_is_no_failure_and_is_asked_again(session: Session) -> None:
    """A sandbox may have been installed since."""
    items = [session.item("hang/docker", fail_with(NotHere("no engine answers")))]
    outcome = session.run(items)
    assert (outcome.failed, outcome.owed) == ((), ())
    assert "| not on this machine | no engine answers |" in session.table
    session.run(items)
    assert session.measured == ["hang/docker"]


def test_a_failure_of_an_earlier_session_is_still_one(session: Session) -> None:
    """Until it is measured anew."""
    session.run([session.item("a", fail_with(FellShort("no")))])
    mended = [session.item("a")]
    assert session.run(mended).failed == ("a",)
    assert session.run(mended, again=("a",)).failed == ()


def test_an_unknown_item_is_refused_with_those_there_are(session: Session) -> None:
    """Before anything is measured."""
    with pytest.raises(UsageError, match="no item is called x; there are: a, b"):
        session.run([session.item("a"), session.item("b")], again=("x",))
    assert session.measured == []


@pytest.mark.parametrize("text", ["{", '{"schema_version": 2}', "\xff"])
def test_a_record_that_cannot_be_read_is_kept_and_named(session: Session, text: str) -> None:
    """It is never overwritten: it was paid for with time on a GPU."""
    session.folder.mkdir()
    path = session.folder / "nvidia-h200-2026-01-02.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"2026-01-02.json cannot be gone on with.*move it away"):
        session.run([session.item("a")])
    assert path.read_text(encoding="latin-1") == text


def test_nothing_that_a_sandbox_printed_can_forge_the_table(session: Session) -> None:
    """Cells stay cells, whatever an error holds."""
    evil = "x |\n| hang/docker | fine | passed | <script> \x1b[2J [a](b) `c` |"
    session.run([session.item("a", fail_with(FellShort(evil)))])
    (line,) = [line for line in session.table.splitlines() if line.startswith("| a ")]
    assert "\x1b" not in session.table
    assert not any(line.startswith("| hang/docker") for line in session.table.splitlines())
    assert r"\| hang/docker \| fine \| passed \| \<script\>" in line


def test_unknown_figures_are_said_to_be_so(session: Session) -> None:
    """None is never shown as a number or as a blank."""
    session.run([session.item("a", lambda: {"xids": None, "mig": False, "x_s": 0.123456})])
    assert "xids not measured; mig no; x_s 0.1235" in session.table
