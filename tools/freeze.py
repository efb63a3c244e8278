"""Writes tasks/VERSION, the version and digest of each task: `make freeze`.

A version of a task has one digest: a changed task needs a higher version, and every freeze that changes
anything increments the suite number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import UsageError
from harness.files import data_directory, write_atomically
from harness.records import Task
from harness.suite.catalogue import all_tasks

FILE_NAME = "VERSION"
_HEAD = (
    "# The suite's number, then every task with its version and the digest of its files.\n"
    "# `make freeze` writes this; a changed task needs a new version first.\n"
)
_LINE = re.compile(r"([\w-]+/[\w-]+) (\d+) ([0-9a-f]{64})")


@dataclass(frozen=True)
class Frozen:
    """The contents of tasks/VERSION."""

    suite: int = 0
    tasks: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Frozen:
        """Raises UsageError for a malformed line."""
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        first = re.fullmatch(r"suite (\d+)", lines[0]) if lines else None
        if first is None:
            raise UsageError("tasks/VERSION must begin with `suite N`; make it anew: make freeze")
        tasks = {}
        for line in lines[1:]:
            found = _LINE.fullmatch(line)
            if found is None:
                raise UsageError(f"tasks/VERSION: {line[:100]!r} is no `level/name version digest`")
            tasks[found[1]] = (int(found[2]), found[3])
        return cls(int(first[1]), tasks)

    def text(self) -> str:
        """The text of the file."""
        lines = [f"{name} {version} {digest}\n" for name, (version, digest) in sorted(self.tasks.items())]
        return f"{_HEAD}suite {self.suite}\n{''.join(lines)}"

    def differences(self, tasks: Sequence[Task]) -> list[str]:
        """The differences between frozen and current tasks, a sentence each."""
        now = {task.id: task for task in tasks}
        found = [f"{name} is frozen and not there" for name in self.tasks if name not in now]
        for name, task in now.items():
            if name not in self.tasks:
                found.append(f"{name} is not frozen")
            elif self.tasks[name] != (task.version, task.digest):
                found.append(f"{name} is not what version {self.tasks[name][0]} was")
        return found

    def with_tasks(self, tasks: Sequence[Task]) -> Frozen:
        """The next suite. Raises UsageError for a task that changed without a new version."""
        changed = [
            f"{task.id} (version {task.version})"
            for task in tasks
            if task.id in self.tasks
            and self.tasks[task.id][1] != task.digest
            and task.version <= self.tasks[task.id][0]
        ]
        if changed:
            raise UsageError(f"changed without a new version: {', '.join(changed)}; raise `version` first")
        if not self.differences(tasks):
            return self
        return Frozen(self.suite + 1, {task.id: (task.version, task.digest) for task in tasks})


def main() -> None:
    """Write the file, unless a task changed under its old version."""
    path = data_directory("tasks") / FILE_NAME
    before = Frozen.parse(path.read_text(encoding="utf-8")) if path.exists() else Frozen()
    tasks = [loaded.task for loaded in all_tasks()]
    differences = before.differences(tasks)
    after = before.with_tasks(tasks)
    if after != before:
        write_atomically(path, after.text())
    for line in differences:
        print(line)
    print(f"suite {after.suite}: {len(after.tasks)} tasks{'' if differences else ', as frozen'}")


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(str(error))
