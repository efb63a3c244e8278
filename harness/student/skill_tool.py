"""The tool by which a student reads files of skills that the prompt only lists.

System prompt and tool are the same in every arm, so arms differ only in the list of skills. Every call gets
an answer, and no call raises an exception.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from harness.records import Message, Skill, Tool, ToolCall

READS_LIMIT: Final = 12
"""Calls that are answered in one turn: a skill's body, its references and a few mistakes."""
LATE_LIMIT: Final = 3
"""Replies that only call tools after READS_LIMIT; the last of them ends the turn."""
RESULT_CHARS: Final = 40_000
"""Characters of one file, about 11,000 tokens."""
_NAME_CHARS: Final = 80

TOOL: Final = Tool(
    name="read_skill_file",
    description=(
        "Returns one text file of a skill that the task's message lists. Begin with the file SKILL.md of a "
        "skill whose description fits; it says which other files there are, and what for."
    ),
    parameters={
        "type": "object",
        "properties": {
            "skill": {"type": "string", "description": "The skill's name, as listed."},
            "path": {"type": "string", "description": "The file, relative to the skill, such as SKILL.md."},
        },
        "required": ["skill", "path"],
    },
)
NO_MORE: Final = "no more files; answer now"


def catalogue(skills: Sequence[Skill]) -> str:
    """The list of skills in the prompt, before the task."""
    if not skills:
        return "No skills are available.\n\n"
    lines = [f'<skill name="{s.name}">{" ".join(s.description.split())}</skill>' for s in skills]
    return "\n".join(["<skills>", *lines, "</skills>", "", ""])


class Reader:
    """Answers the tool calls of one turn."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._documents = {skill.name: skill.documents for skill in skills}
        self._asked = 0

    @property
    def exhausted(self) -> bool:
        """Whether the limit is reached and no further file is returned."""
        return self._asked >= READS_LIMIT

    def answer(self, calls: Sequence[ToolCall]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """A message for every call, in order, and the files that were read, as `skill/path`."""
        messages, reads = [], []
        for call in calls:
            text, read = (NO_MORE, None) if self.exhausted else self._one(call)
            self._asked += 1
            messages.append(Message(role="tool", content=text, tool_call_id=call.id))
            if read is not None:
                reads.append(read)
        return tuple(messages), tuple(reads)

    def _one(self, call: ToolCall) -> tuple[str, str | None]:
        if call.name != TOOL.name:
            return f"error: there is no tool {_name(call.name)}; there is {TOOL.name}", None
        arguments = _arguments(call.arguments)
        if arguments is None:
            return 'error: the arguments must be a JSON object {"skill": "...", "path": "..."}', None
        skill, path = arguments
        if skill not in self._documents:
            known = f"there are: {', '.join(sorted(self._documents))}" if self._documents else "there is none"
            return f"error: no skill {_name(skill)}; {known}", None
        documents = self._documents[skill]
        normal = PurePosixPath(path).as_posix()
        if normal not in documents:
            present = ", ".join(sorted(documents)) or "none"
            return _clipped(f"error: {skill} has no text file {_name(path)}; it has: {present}"), None
        return _clipped(documents[normal]), f"{skill}/{normal}"


def _arguments(text: str) -> tuple[str, str] | None:
    """(skill, path), or None for malformed arguments."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    skill, path = found.get("skill"), found.get("path")
    return (skill, path) if isinstance(skill, str) and isinstance(path, str) else None


def _name(text: str) -> str:
    return repr(text if len(text) <= _NAME_CHARS else text[:_NAME_CHARS] + "...")


def _clipped(text: str) -> str:
    if len(text) <= RESULT_CHARS:
        return text
    return f"{text[:RESULT_CHARS]}\n[the first {RESULT_CHARS:,} of {len(text):,} characters]"
