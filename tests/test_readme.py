"""README.md: the figures in its status table are those of the pages that runs have written."""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness.suite.catalogue import select_tasks

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
SECURITY = (ROOT / "docs" / "generated" / "security.md").read_text()


def found(pattern: str, text: str) -> list[str]:
    """What the groups of the only match are."""
    matches = list(re.finditer(pattern, text))
    assert len(matches) == 1, f"{len(matches)} matches of {pattern}"
    return [str(group) for group in matches[0].groups()]


def test_caught_projects_are_those_of_the_zoo() -> None:
    """Counts of `make zoo`."""
    said = found(r"(\d+) of (\d+) hostile caught in bubblewrap, no false positive among (\d+)", README)
    row = r"\| bubblewrap \| (\d+) / (\d+) \| \d+ / \d+ \| (\d+) / (\d+) \|"
    *bubblewrap, wrong, honest = found(row, SECURITY)
    assert wrong == "0"
    assert said == [*bubblewrap, honest]
    (rows,) = found(r"(\d+) rows run emulated, \*\*never run on a GPU\*\*", README)
    assert [rows] == found(r"(\d+) of \d+ rows need a GPU", SECURITY)


def test_the_suite_has_its_size() -> None:
    """Tasks, families and experts; a task without an expert is not admitted."""
    tasks = [one.task for one in select_tasks([])]
    families = {task.family for task in tasks}
    assert found(r"has (\d+) tasks in (\d+) families", README) == [str(len(tasks)), str(len(families))]
    assert found(r"build: (\d+) expert projects", README) == [str(len(tasks))]
    assert found(r"admission of all (\d+) tasks", README) == [str(len(tasks))]


def test_timed_experts_are_those_with_results() -> None:
    """On the CPU target, over all files that `make status` reads."""
    timed = {
        one["task"]
        for path in (ROOT / "results").glob("cpu-*.json")
        for one in json.loads(path.read_text())["results"]
        if one["target"] == "cpu" and one["speedup"] is not None
    }
    assert found(r"(\d+) timed, on a shared VM", README) == [str(len(timed))]
