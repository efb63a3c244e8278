"""Test cases of a new skill, written by the teacher: none that an answer without knowledge passes.

They lie in evals/evals.json of the skill, which no student is shown.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.cases.importing import FILES, load_cases
from harness.cases.scoring import worth_of
from harness.errors import UsageError
from harness.files import write_files
from harness.records import Message, Skill
from harness.skills.spec import FILE
from harness.student.fences import fenced
from harness.teaching.brief import faulty_brief
from harness.teaching.workshop import ATTEMPTS, DraftError, Teacher, read_changes

CASES_FILE: Final = FILES[1]
_SYSTEM: Final = """\
You write test cases for an agent skill. A case is a prompt, and checks on the text of one reply to it. A \
case is good when a model that knows what the skill teaches passes it, and a model that does not know it \
fails. A case proves nothing if an echo of its prompt, an empty answer or a refusal passes it: the expected \
words must not stand in the prompt, and must be specific facts that the skill teaches (a name, a figure, \
a call)."""
_FORM: Final = """\
Write {wanted} test cases about different parts of the skill, in this form, each with 1 to 4 assertions, and \
nothing else:

<file path="evals/evals.json">
{{"skill_name": "{name}", "evals": [
  {{"id": 1, "prompt": "...", "expected_output": "one sentence", "files": [], "assertions": [
    {{"type": "contains", "values": ["text that must occur in the reply, ignoring case"]}},
    {{"type": "regex", "pattern": "a regular expression of Python that must match somewhere"}},
    {{"type": "file_contains", "path": "path/of/a/file", "text": "text that the reply's file must hold"}}
  ]}}
]}}
</file>"""


def cases_brief(skill: Skill, wanted: int) -> tuple[Message, ...]:
    """Asks for test cases of a skill."""
    text = f"# The skill\n\n{fenced(skill.documents[FILE], FILE)}\n\n# What is wanted\n\n"
    form = _FORM.format(wanted=wanted, name=skill.name)
    return (Message(role="system", content=_SYSTEM), Message(role="user", content=text + form))


def write_cases(teacher: Teacher, skill: Skill, wanted: int) -> tuple[str | None, int]:
    """The text of evals/evals.json, and how many cases were refused; None where no case is left.

    Faults go back to the teacher, twice at most. Raises ProviderError and BudgetSpent.
    """
    brief = cases_brief(skill, wanted)
    kept: list[Any] = []
    refused = 0
    for _ in range(ATTEMPTS):
        reply = teacher.ask(brief)
        try:
            text = read_changes(reply).files.get(CASES_FILE)
            if text is None:
                raise DraftError(f'no test cases were given: write <file path="{CASES_FILE}">')
            kept, faults = _judged(text)
        except DraftError as error:
            faults = error.args
        refused = len(faults)
        if not faults:
            break
        brief = faulty_brief(brief, reply.text, faults)
    if not kept:
        return None, refused
    return json.dumps({"skill_name": skill.name, "evals": kept}, indent=1) + "\n", refused


def _judged(text: str) -> tuple[list[Any], Sequence[str]]:
    """The entries that prove something, and what is wrong with the others. Raises DraftError."""
    with tempfile.TemporaryDirectory(prefix="liftbench-cases-") as made:
        write_files({CASES_FILE: text}, Path(made))
        try:
            cases = load_cases(Path(made))
        except UsageError as error:
            raise DraftError(str(error).replace(f"{made}/", "")) from error
    document = json.loads(text)
    if not isinstance(document, dict) or len(document.get("evals") or ()) != len(cases):
        raise DraftError(f'{CASES_FILE} must be an object with the list "evals" and no other list of cases')
    kept, faults = [], []
    for entry, case in zip(document["evals"], cases, strict=True):
        if any(check.kind == "command" for check in case.checks):
            faults.append(f"{case.id}: a command is not accepted here; check the reply's text or files")
        elif (worth := worth_of(case, None)).worth == "none":
            faults.append(f"{case.id}: {worth.why}")
        else:
            kept.append(entry)
    return kept, faults
