"""What each sandbox promises, and whether it keeps it on this machine: the table that doctor prints.

A backend that cannot be used says why; nothing is shown as held that was not tried.
"""

from __future__ import annotations

from typing import Literal

from rich.table import Table
from rich.text import Text

from harness.errors import InfraError
from harness.records import Record
from harness.text import first_line
from sandboxes.registry import BACKENDS, open_sandbox
from sandboxes.selftest import PROMISES, Probed, probe

State = Literal["held", "held, not promised", "open", "broken"]
_STYLES: dict[State, str] = {
    "held": "green",
    "held, not promised": "dim",
    "open": "yellow",
    "broken": "bold red",
}
_SHORT: dict[State, str] = {
    "held": "held",
    "held, not promised": "(held)",
    "open": "open",
    "broken": "BROKEN",
}


class PromiseState(Record):
    """One promise of one backend."""

    promise: str
    state: State
    detail: str
    """What got through, or what stopped it."""


class SandboxState(Record):
    """One backend on this machine."""

    name: str
    unavailable: str | None
    """Why it cannot be used, and what to do; None where it was probed."""
    promises: tuple[PromiseState, ...] = ()
    seconds: float | None = None
    """How long the probe took, the start included."""

    @property
    def summary(self) -> str | None:
        """For a list of what was found; None where it cannot be used."""
        if self.unavailable is not None:
            return None
        states = [one.state for one in self.promises]
        broken = [one.promise for one in self.promises if one.state == "broken"]
        if broken:
            return f"refused: {', '.join(broken)} does not hold"
        promised = states.count("held")
        return f"keeps all {promised} promises it makes" + ("" if promised > 2 else ": no isolation")


def probe_all() -> tuple[SandboxState, ...]:
    """Probe every backend that can be used here; about half a second each."""
    return tuple(_probed(name) for name in BACKENDS)


def _probed(name: str) -> SandboxState:
    try:
        sandbox = open_sandbox(name)
        try:
            report = probe(sandbox, str(sandbox.python))
        finally:
            sandbox.close()
    except InfraError as error:
        return SandboxState(name=name, unavailable=first_line(str(error)))
    states = tuple(
        PromiseState(promise=one.name, state=_state(one), detail=first_line(one.detail))
        for one in report.promises
    )
    return SandboxState(name=name, unavailable=None, promises=states, seconds=round(report.seconds, 2))


def _state(one: Probed) -> State:
    if one.promised:
        return "held" if one.held else "broken"
    return "held, not promised" if one.held else "open"


def promise_table(sandboxes: tuple[SandboxState, ...]) -> Table:
    """Promise by backend."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("promise")
    for sandbox in sandboxes:
        table.add_column(sandbox.name)
    found = [{one.promise: one.state for one in sandbox.promises} for sandbox in sandboxes]
    for name, text in PROMISES.items():
        table.add_row(text, *(_cell(states.get(name)) for states in found))
    return table


def _cell(state: State | None) -> Text:
    return Text("-", style="dim") if state is None else Text(_SHORT[state], style=_STYLES[state])
