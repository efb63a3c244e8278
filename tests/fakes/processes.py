"""What runs on this machine, as /proc tells it."""

from __future__ import annotations

from pathlib import Path


def processes_naming(word: str) -> list[str]:
    """Command lines on this machine that hold `word`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes()
        except OSError:
            continue  # It ended.
        if word.encode() in command:
            found.append(command.decode(errors="replace"))
    return found


def children(name: str, of: int | None = None) -> list[int]:
    """Process ids of the children of a process (default: ours) in whose command line `name` stands."""
    tasks = Path(f"/proc/{of or 'self'}/task").iterdir()
    pids = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    return [pid for pid in pids if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
