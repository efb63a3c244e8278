"""What `make gpu-check` leaves in `results/`: one JSON file per GPU model, named by the day of its first
item, and a table beside it.

Both are replaced before and after every item, so whatever ends a session keeps all that was finished before,
and names what it ended in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.records import Record
from harness.records.reasons import reason_of

Fact = str | int | float | bool | None
Status = Literal["passed", "failed", "not_here", "unfinished"]
_WORDS: dict[Status, str] = {
    "passed": "passed",
    "failed": "FAILED",
    "not_here": "not on this machine",
    "unfinished": "DID NOT END",
}


class Entry(Record):
    """The result of one item."""

    name: str
    proves: str
    status: Status
    facts: dict[str, Fact]
    error: str | None
    wall_s: float
    measured_at: str
    gpu_uuid: str = ""
    code: str = ""
    """Digest of liftbench, sandboxes, tasks, experts and the items; torch and driver."""
    trace: str | None = None
    """The end of pytest's report of a failure."""

    def finished(self, code: str) -> bool:
        """Whether the item need not run again. A missing sandbox may have been installed since, and what
        failed may have been mended in other code."""
        return self.status == "passed" or (self.status == "failed" and self.code == code)


class Contents(Record):
    """One GPU's file in `results/`."""

    schema_version: Literal[1] = 1
    liftbench: str
    gpu: str
    gpu_uuid: str
    software: dict[str, str] = Field(default_factory=dict)
    entries: tuple[Entry, ...] = ()


@dataclass
class Ledger:
    """The file of one GPU model."""

    path: Path
    contents: Contents

    @classmethod
    def open(
        cls, folder: Path, gpu: str, uuid: str, day: str, version: str, software: Mapping[str, str]
    ) -> Ledger:
        """Continues the newest file of that model; `day` names a first one. Raises UsageError if it is
        broken."""
        model = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
        path = max(folder.glob(f"{model}-20??-??-??.json"), default=folder / f"{model}-{day}.json")
        fresh = Contents(liftbench=version, gpu=gpu, gpu_uuid=uuid, software=dict(software))
        if not path.exists():
            return cls(path, fresh)
        try:
            found = Contents.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(
                f"{path} cannot be continued: {reason_of(error)}; move it away to begin anew"
            ) from error
        return cls(path, found.model_copy(update={"software": {**found.software, **fresh.software}}))

    def entry(self, name: str) -> Entry | None:
        """The item's result, or None where it has none."""
        return next((entry for entry in self.contents.entries if entry.name == name), None)

    def add(self, entry: Entry) -> None:
        """Record a result, in place of an older one, and write both files."""
        others = tuple(e for e in self.contents.entries if e.name != entry.name)
        self.contents = self.contents.model_copy(update={"entries": (*others, entry)})
        write_atomically(self.path, self.contents.model_dump_json(indent=1) + "\n")
        write_atomically(self.path.with_suffix(".md"), _table(self.contents))


def _table(contents: Contents) -> str:
    software = ", ".join(f"{name} {_cell(value)}" for name, value in contents.software.items())
    lines = [
        f"# {contents.gpu}: what was measured\n",
        f"GPU {contents.gpu_uuid}, liftbench {contents.liftbench}, {software}. Made by `make gpu-check`.\n",
        "| item | what it proves | result | seen | at (UTC) |\n|---|---|---|---|---|",
    ]
    for entry in contents.entries:
        seen = [f"{name} {_shown(value)}" for name, value in entry.facts.items()]
        seen += [entry.error] if entry.error else []
        cells = (entry.name, entry.proves, _WORDS[entry.status], "; ".join(seen), entry.measured_at)
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def _shown(value: Fact) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Errors quote what a sandbox printed: nothing of it may look like table or markup."""
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+", " ", text)
    return re.sub(r"([|<>`\\\[\]])", r"\\\1", clean)[:600]
