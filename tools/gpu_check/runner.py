"""Runs the items that are owed, in order, until they or the time are at an end.

An item that fails is written down and does not stop the others; none is begun that would not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.errors import UsageError
from harness.records.gpu_check import Entry, Fact, Status
from tools.gpu_check.item import Bench, FellShort, Item, NotHere
from tools.gpu_check.ledger import Ledger


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    failed: tuple[str, ...]
    """Names of items whose last answer is a failure, also from an earlier session."""
    owed: tuple[str, ...]
    """Names of items without an answer, for want of time."""


def run_items(
    items: Sequence[Item],
    bench: Bench,
    ledger: Ledger,
    *,
    budget_s: float,
    again: Collection[str] = (),
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Run what is owed, and the items named in `again`. Raises UsageError for a name that is no item's.

    Stops at the first item whose estimate exceeds what is left of `budget_s`.
    """
    unknown = set(again) - {item.name for item in items}
    if unknown:
        names = ", ".join(item.name for item in items)
        raise UsageError(f"no item is called {', '.join(sorted(unknown))}; there are: {names}")
    began = clock()
    ledger.write_table(items)
    for item in items:
        entry = ledger.entry(item.name)
        if entry is not None and entry.finished and item.name not in again:
            say(f"{item.name}: {entry.status} before, at {entry.measured_at}")
            continue
        left_s = budget_s - (clock() - began)
        if item.estimate_s > left_s:
            say(
                f"{item.name}: needs about {item.estimate_s:.0f} s and {left_s:.0f} s are left: stopping here"
            )
            break
        entry = _measured(item, bench, clock)
        ledger.add(entry, items)
        say(f"{item.name}: {entry.status} in {entry.wall_s:.1f} s{f': {entry.error}' if entry.error else ''}")
    entries = {item.name: ledger.entry(item.name) for item in items}
    return Outcome(
        failed=tuple(name for name, entry in entries.items() if entry and entry.status == "failed"),
        owed=tuple(name for name, entry in entries.items() if entry is None),
    )


def _measured(item: Item, bench: Bench, clock: Callable[[], float]) -> Entry:
    began = clock()
    facts: dict[str, Fact] = {}
    error: str | None = None
    status: Status = "passed"
    try:
        facts = item.measure(bench)
    except NotHere as reason:
        status, error = "not_here", str(reason)
    except FellShort as failure:
        status, error, facts = "failed", str(failure), failure.facts
    except Exception as failure:  # noqa: BLE001 - written down; the next item may still answer its question
        status, error = "failed", f"{type(failure).__name__}: {failure}"
    return Entry(
        name=item.name,
        proves=item.proves,
        status=status,
        facts=facts,
        error=error,
        wall_s=round(clock() - began, 3),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
    )
