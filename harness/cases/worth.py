"""Whether passing a test case says anything: it is tried on answers that solve nothing.

A case that one of them passes, or that checks nothing, has no worth, whatever a model does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from harness.cases.asking import case_text
from harness.cases.commands import Commands
from harness.cases.records import TestCase, Worth
from harness.cases.scoring import score, verdict

REFUSAL: Final = (
    "I'm sorry, but I cannot help with that request. Please let me know if I can do anything else."
)
NOTHING: Final = "nothing is checked"


def trivial_answers(case: TestCase) -> dict[str, str]:
    """Name -> answer, in the order in which they are tried."""
    found = {"an echo of the prompt": case.prompt, "the empty answer": ""}
    if case.files:
        found["an echo of the prompt and its files"] = case_text(case)
    return found | {"a refusal": REFUSAL}


def worth_of(case: TestCase, commands: Commands | None) -> Worth:
    """What a pass of this case is worth. Raises SandboxError."""
    if not case.checks:
        return Worth(case=case.id, worth="none", why=f"worthless: {NOTHING}")
    unknown = False
    for name, text in trivial_answers(case).items():
        found = verdict(score(case, text, commands))
        if found == "passed":
            return Worth(case=case.id, worth="none", passed_by=name, why=f"worthless: {name} passes it")
        unknown = unknown or found == "not_run"
    if unknown:
        return Worth(case=case.id, worth="unknown", why="not known: its command was not run")
    return Worth(case=case.id, worth="some", why="no trivial answer passes it")


def sentence(worths: Sequence[Worth]) -> str:
    """How many of them prove nothing, and why: one line."""
    vain = [one for one in worths if one.worth == "none"]
    if not vain:
        return f"0 of {len(worths)} cases prove nothing: no trivial answer passes one"
    reasons = Counter(one.passed_by for one in vain)
    said = [f"{name} passes {count}" for name, count in reasons.items() if name is not None]
    if reasons[None]:
        said.append(f"{NOTHING} in {reasons[None]}")
    return f"{len(vain)} of {len(worths)} cases prove nothing: {', '.join(said)}"
