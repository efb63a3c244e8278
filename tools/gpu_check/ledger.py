"""The record of what was found on one GPU: a JSON file, and a table made from it.

The JSON file is replaced whole after every item, so whatever ends a session leaves all that was finished
before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.records.gpu_check import Contents, Entry, Fact, Status
from harness.records.reasons import reason_of
from tools.gpu_check.item import Item

_WORDS: dict[Status, str] = {"passed": "passed", "failed": "FAILED", "not_here": "not on this machine"}
NOT_YET = "not measured yet"


class Ledger:
    """One file per GPU model and day."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path = path
        self._contents = contents

    @classmethod
    def open(
        cls,
        folder: Path,
        gpu: str,
        uuid: str,
        day: str,
        version: str,
        software: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Goes on with the file of that GPU and day where there is one. Raises UsageError if it is broken."""
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}-{day}.json"
        fresh = Contents(liftbench=version, gpu=gpu, gpu_uuid=uuid, software=dict(software or {}))
        if not path.exists():
            return cls(path, fresh)
        try:
            found = Contents.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(
                f"{path} cannot be gone on with: {reason_of(error)}; move it away to begin anew"
            ) from error
        return cls(path, found.model_copy(update={"software": {**found.software, **fresh.software}}))

    def entry(self, name: str) -> Entry | None:
        """What was found last."""
        return next((entry for entry in self._contents.entries if entry.name == name), None)

    def add(self, entry: Entry, items: Sequence[Item]) -> None:
        """Write it down, in place of an older answer, and make the table anew."""
        others = tuple(e for e in self._contents.entries if e.name != entry.name)
        self._contents = self._contents.model_copy(update={"entries": (*others, entry)})
        write_atomically(self.path, self._contents.model_dump_json(indent=1) + "\n")
        self.write_table(items)

    def write_table(self, items: Sequence[Item]) -> None:
        """Beside the JSON file, with what is owed."""
        write_atomically(self.path.with_suffix(".md"), self.table(items))

    def _reached(self, items: Sequence[Item]) -> str:
        """How many items ended how."""
        entries = [self.entry(item.name) for item in items]
        count = Counter(NOT_YET if entry is None else _WORDS[entry.status] for entry in entries)
        return ", ".join(f"{count[word]} {word}" for word in (*_WORDS.values(), NOT_YET) if count[word])

    def table(self, items: Sequence[Item]) -> str:
        """Markdown: every item, also those that nobody has measured."""
        head = self._contents
        lines = [
            f"# {head.gpu}: what was measured",
            "",
            f"GPU {head.gpu_uuid}, liftbench {head.liftbench}. "
            f"Made by `make gpu-check` from {self.path.name}.",
            "",
            ", ".join(f"{name} {_cell(value)}" for name, value in head.software.items()) or "-",
            "",
            f"Reached: {self._reached(items)}.",
            "",
            "| item | what it proves | result | seen | at (UTC) |",
            "|---|---|---|---|---|",
        ]
        for item in items:
            entry = self.entry(item.name)
            if entry is None:
                cells = [item.name, item.proves, NOT_YET, "", ""]
            else:
                seen = [f"{name} {_shown(value)}" for name, value in entry.facts.items()]
                seen += [entry.error] if entry.error else []
                cells = [item.name, item.proves, _WORDS[entry.status], "; ".join(seen), entry.measured_at]
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
        return "\n".join(lines) + "\n"


def _shown(value: Fact) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Errors hold what a sandbox has printed: nothing of it may look like table or markup."""
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+", " ", text)
    return re.sub(r"([|<>`\\\[\]])", r"\\\1", clean)[:600]
