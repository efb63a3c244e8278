"""The table of promises that doctor prints."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.cli.doctor import PromiseState, SandboxState, State, promise_table
from sandboxes.selftest import PROMISES


def _state(name: str, state: State, **others: State) -> SandboxState:
    rows = tuple(
        PromiseState(promise=one, state=others.get(one, state), detail="refused") for one in PROMISES
    )
    return SandboxState(name=name, unavailable=None, promises=rows, seconds=0.5)


def _printed(*states: SandboxState) -> list[str]:
    sink = io.StringIO()
    Console(file=sink, width=140).print(promise_table(states))
    return sink.getvalue().splitlines()


@pytest.mark.parametrize(
    ("state", "cell"),
    [("held", "held"), ("held, not promised", "(held)"), ("open", "open"), ("broken", "BROKEN")],
)
def test_every_state_has_a_cell(state: State, cell: str) -> None:
    """Each promise is one row, and its cell says what came of it."""
    head, *rows = _printed(_state("docker", state))
    assert head.split() == ["promise", "docker"]
    assert [row.split()[-1] for row in rows] == [cell] * len(PROMISES)


def test_a_backend_that_is_not_there_shows_nothing_as_held() -> None:
    """The column of a backend that could not be probed has dashes only."""
    absent = SandboxState(name="docker", unavailable="no engine answers")
    rows = _printed(absent, _state("local", "open"))[1:]
    assert {tuple(row.split()[-2:]) for row in rows} == {("-", "open")}
    assert absent.summary is None


def test_the_summary_names_broken_promises() -> None:
    """A backend that breaks a promise is refused, and the promise is named."""
    assert _state("docker", "held", mounts="broken").summary == "refused: mounts does not hold"
    assert _state("docker", "held").summary == f"keeps all {len(PROMISES)} promises it makes"
    assert "no isolation" in str(_state("local", "open", descriptors="held").summary)
