"""The record of admissions: a JSON file, and a table made from it.

The JSON file is replaced whole after every task, so that whatever ends a session leaves all that was found
before; an entry counts for the files that it was made with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.records import Project, Record, Task
from harness.records.reasons import reason_of
from harness.records.task import Admission, Rule, RuleName

FILE_NAME = "ADMISSION.json"
RULES: tuple[RuleName, ...] = get_args(RuleName)
_WORDS = {"holds": "yes", "fails": "NO", "not_measured": "-"}


class Contents(Record):
    """The JSON file."""

    schema_version: Literal[1] = 1
    entries: tuple[Admission, ...] = ()


class Admitted:
    """Admissions by task."""

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path = path
        self._entries = {entry.task: entry for entry in contents.entries}

    @classmethod
    def open(cls, path: Path) -> Admitted:
        """The file, or an empty record where there is none. Raises UsageError for a broken one."""
        if not path.exists():
            return cls(path, Contents())
        try:
            return cls(path, Contents.model_validate_json(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(
                f"{path} is no record of admissions: {reason_of(error)}; move it away"
            ) from error

    @property
    def entries(self) -> tuple[Admission, ...]:
        """All, by task."""
        return tuple(self._entries[name] for name in sorted(self._entries))

    def entry(self, task: Task, expert: Project | None) -> Admission | None:
        """What was found of exactly these files; None where they changed since."""
        found = self._entries.get(task.id)
        digests = (task.digest, None if expert is None else expert.digest)
        return found if found is not None and (found.task_digest, found.expert) == digests else None

    def add(self, entry: Admission) -> None:
        """Write it down, in place of an older one, and make the table anew."""
        self._entries[entry.task] = entry
        self.write()

    def write(self) -> None:
        """Both files."""
        contents = Contents(entries=self.entries)
        write_atomically(self.path, contents.model_dump_json(indent=1) + "\n")
        write_atomically(self.path.with_suffix(".md"), self.table())

    def keep(self, tasks: Sequence[Task]) -> bool:
        """Forget all but these tasks; whether there was something to forget."""
        before, names = len(self._entries), {task.id for task in tasks}
        self._entries = {name: entry for name, entry in self._entries.items() if name in names}
        return len(self._entries) != before

    def table(self) -> str:
        """Markdown: a line for each task."""
        entries = self.entries
        lines = [
            "# Admission of every task",
            "",
            f"Made by `liftbench tasks check --record {self.path.name}`; the rules stand in docs/tasks.md. "
            f"{sum(entry.admitted for entry in entries)} of {len(entries)} tasks break none. `-` is not "
            "measured.",
            "",
            f"| task | version | {' | '.join(RULES)} |",
            "|---" * (len(RULES) + 2) + "|",
        ]
        for entry in entries:
            rules = {rule.name: rule for rule in entry.rules}
            cells = [cell(rules[name]) if name in rules else "-" for name in RULES]
            lines.append(f"| {entry.task} | {entry.version} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def cell(rule: Rule) -> str:
    """One rule in a table."""
    if rule.name == "mutants" and rule.status == "holds":
        return rule.said.split(" caught")[0].replace(" of ", "/")
    return _WORDS[rule.status]
