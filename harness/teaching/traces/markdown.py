"""Reads transcripts written as Markdown or as a terminal showed them, and plain logs.

Every line that is not blank is in one event, or is a marker of who speaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from harness.fences import Block, fenced_blocks
from harness.teaching.traces.collector import Collector
from harness.teaching.traces.event import Kind, Role
from harness.teaching.traces.fences import code_path

_SHELL: Final = frozenset(("bash", "sh", "shell", "zsh", "console", "terminal", "powershell", "cmd"))
_OUTPUT: Final = frozenset(
    ("", "text", "txt", "output", "log", "plaintext", "stdout", "stderr", "traceback", "pytb", "ansi")
)
_WORDS: Final[dict[str, tuple[Role, Kind]]] = {
    **dict.fromkeys(("user", "human", "you", "prompt"), ("user", "text")),
    **dict.fromkeys(
        (
            "assistant",
            "claude",
            "codex",
            "gemini",
            "model",
            "agent",
            "ai",
            "gpt",
            "chatgpt",
            "opencode",
            "bot",
        ),
        ("assistant", "text"),
    ),
    **dict.fromkeys(("thinking", "reasoning"), ("assistant", "thinking")),
    **dict.fromkeys(("system", "developer"), ("system", "text")),
    **dict.fromkeys(("tool call", "tool use", "tool_use", "tool input"), ("assistant", "tool_call")),
    **dict.fromkeys(
        (
            "tool",
            "tool result",
            "tool output",
            "tool_result",
            "tool response",
            "observation",
            "function result",
        ),
        ("tool", "tool_result"),
    ),
}
_NAMES = "|".join(sorted((w.replace(" ", "[ _]") for w in _WORDS), key=len, reverse=True))
# Emoji, numbers and brackets may stand before the word; a model's name or a time behind it.
_HEADING = re.compile(
    rf"^#{{1,6}}\s+[^\w\n]{{0,8}}(?:\d+[.)]\s*)?[^\w\n]{{0,8}}({_NAMES})\b(?:\s*\([^)\n]{{0,80}}\))?"
    r"\s*(?:[:\u2013\u2014-]\s*(?P<rest>.{0,200}))?\W*$",
    re.I,
)
_BOLD = re.compile(
    rf"^\W{{0,4}}(?:\*\*|__)[^\w*]{{0,4}}({_NAMES})(?:\s*[(\[][^*\n]{{0,60}}[)\]])?\s*"
    r"(?:(?:\*\*|__)\s*:?|:\s*(?:\*\*|__)|:\s*(?=\w+\s*(?:\*\*|__)\s*$))\s*(?P<rest>.*)$",
    re.I,
)
# Inside of a tool's section, as opencode writes it.
_PART = re.compile(
    r"^(?:#{1,6}\s+|\*\*)?(Input|Arguments|Args|Output|Result)\s*:?\s*(?:\*\*)?\s*:?\s*$", re.I
)
_PLAIN = re.compile(r"^(User|Human|Assistant|System|Tool|Claude|AI)\s*:\s?(?P<rest>.*)$")
_CALLED = re.compile(r"^[\u23fa\u25cf]\s+(?P<tool>[\w.:-]+)\((?P<input>.*)$")
_SPOKEN = re.compile(r"^[\u23fa\u25cf]\s+(?P<rest>.*)$")
_RETURNED = re.compile(r"^\s{0,4}\u23bf\s?(?P<rest>.*)$")
_TYPED = re.compile(r"^\u276f\s?(?P<rest>.*)$")
_MARKS: Final = " \u23fa\u25cf\u23bf\u276f"
_LONG: Final = 16_000
"""A blank line ends an event of more characters than this, so that places stay exact."""
_MARKER_LIMIT: Final = 400


class MarkdownReader:
    """Takes lines one by one."""

    def __init__(self, out: Collector) -> None:
        self._out = out
        self._role: Role = "assistant"
        self._kind: Kind = "text"
        self._tool: str | None = None
        self._lines: list[str] = []
        self._start = 1
        self._size = 0
        self._above = ""
        self.spoken = False
        """Whether any line said who speaks."""
        self.fenced = False
        """Whether there was a fenced block."""

    def read(self, lines: Iterable[str]) -> None:
        """All lines, without their ends."""
        held = list(lines)
        blocks = {block.line: block for block in fenced_blocks("\n".join(held))}
        end = 0
        for number, line in enumerate(held, 1):
            if number < end:
                continue
            block = blocks.get(number)
            if block is not None:
                self._above = next((x for x in reversed(self._lines) if x.strip()), self._above)
                self._flush()
                self._block(block)
                self._start = end = block.end
                self.fenced = True
            elif not self._marker(line, number):
                self._take(line, number)
        self._flush()

    def _take(self, line: str, number: int) -> None:
        if not self._lines:
            self._start = number
        self._lines.append(line)
        self._size += len(line)
        if self._size > _LONG and not line.strip():
            self._flush()

    def _marker(self, line: str, number: int) -> bool:
        """Whether the line begins somebody's turn."""
        if not line.strip() or len(line) > _MARKER_LIMIT:
            return False
        terminal = self._terminal(line) or self._part(line)
        if terminal is None:
            named = _HEADING.match(line) if line[0] == "#" else None
            if named is None and ("**" in line or "__" in line):
                named = _BOLD.match(line)
            named = named or _PLAIN.match(line)
            if named is None:
                return False
            role, kind = _WORDS[named[1].lower().replace("_", " ") if " " in named[1] else named[1].lower()]
            terminal = (role, kind, None, named["rest"] or "")
        self._flush()
        self.spoken = True
        self._role, self._kind, self._tool, rest = terminal
        if self._kind in ("tool_call", "tool_result") and self._tool is None:
            self._tool = (
                rest.strip("`*_ ") if re.fullmatch(r"[`*_]*[\w.:-]{1,60}[`*]*", rest.strip()) else None
            )
            rest = "" if self._tool else rest
        if rest:
            self._take(rest, number)
        return True

    def _part(self, line: str) -> tuple[Role, Kind, str | None, str] | None:
        """What a tool was given, or gave back, in the section of a tool that has a name."""
        named = _PART.match(line) if self._tool is not None else None
        if named is None:
            return None
        if named[1].lower() in ("output", "result"):
            return "tool", "tool_result", self._tool, ""
        return "assistant", "tool_call", self._tool, ""

    @staticmethod
    def _terminal(line: str) -> tuple[Role, Kind, str | None, str] | None:
        """Marks of Claude Code's screen."""
        if line[0] not in _MARKS:
            return None
        if called := _CALLED.match(line):
            return "assistant", "tool_call", called["tool"], called["input"].removesuffix(")")
        if returned := _RETURNED.match(line):
            return "tool", "tool_result", None, returned["rest"]
        if spoken := _SPOKEN.match(line):
            return "assistant", "text", None, spoken["rest"]
        if typed := _TYPED.match(line):
            return "user", "text", None, typed["rest"]
        return None

    def _flush(self) -> None:
        text, kind = "\n".join(self._lines), self._kind
        line = self._start
        self._lines, self._size = [], 0
        arguments = {"command": text} if kind == "tool_call" else {}
        tool = self._tool if kind in ("tool_call", "tool_result") else None
        place = f"line {line}"
        self._out.add(self._role, kind, text, place, tool=tool, arguments=arguments, line=line)

    def _block(self, block: Block) -> None:
        """A fenced block: a command, what came back, or code, by its language and by who speaks."""
        text, line, place = block.text.removesuffix("\n"), block.line + 1, f"line {block.line + 1}"
        language = (block.info.split() or [""])[0].lower()
        if self._role == "user" or self._kind == "thinking":
            self._out.add(self._role, self._kind, text, place, line=line)
        elif self._kind == "tool_result" or language in _OUTPUT:
            # after a call without a result of its own, this is the result
            self._out.add("tool", "tool_result", text, place, tool=self._tool, line=line)
        elif self._kind == "tool_call" or language in _SHELL:
            self._commands(text, line)
        else:
            path = code_path(block.info, self._above)
            arguments = {"path": path} if path else {}
            self._out.add("assistant", "code", text, place, arguments=arguments, line=line)
        self._above = ""

    def _commands(self, text: str, line: int) -> None:
        """A block of commands; lines below a `$ command` are its output."""
        tool, group, start, called = self._tool or "shell", list[str](), line, True
        if text.lstrip().startswith("{"):  # arguments as JSON
            self._out.called(tool, text, f"line {line}")
            return
        prompted = any(x.startswith("$ ") for x in text.split("\n"))
        for number, x in enumerate([*text.split("\n"), None], line):
            command = x is not None and (not prompted or x.startswith("$ "))
            if (x is None or command != called) and group:
                body, place = "\n".join(group), f"line {start}"
                if called:
                    arguments = {"command": body}
                    self._out.add(
                        "assistant", "tool_call", body, place, tool=tool, arguments=arguments, line=start
                    )
                else:
                    self._out.add("tool", "tool_result", body, place, tool=tool, line=start)
                group = []
            if x is not None:
                start = start if group else number
                called = command
                group.append(x.removeprefix("$ ") if command else x)
