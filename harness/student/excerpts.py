"""Words of tools and of students' code, made fit to stand in what a student is told.

Every line of a quotation begins with "> ", so none can pass for ours; no absolute path is left in a message
or trace; a quotation has at most the tokens that it was given, plus a line or two that say what was left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harness.text import clean, estimate_tokens, shorten

LINE_CHARS: Final = 400
_MARK: Final = "> "

# Two or more parts: `/x` alone may be a division. What follows a word, a dot or a colon is no root.
_DIRECTORIES = re.compile(r"(?<![\w.:/~*-])/(?:[^\s/:;'\"`,()<>|]+/)+")
_FRAME = re.compile(r"^\s*File \"(?P<path>[^\"\n]{1,1000})\", line (?P<line>\d{1,9})(?P<where>.*)$")
_NUMBER = re.compile(r"\d+")
_NATIVE_FRAME = re.compile(r"^(?:frame )?#\d+:? ")
_OUR_COPY: Final = "project"
"""The folder of the built package, where a worker runs."""


def without_places(text: str, module: str) -> str:
    """`text` with paths as the student knows them: into its package `module`, or a file's name alone."""

    def known(found: re.Match[str]) -> str:
        path = found[0]
        inside = _inside(path)
        if inside is not None:
            return f"torch-ext/{module}/{inside}"
        return path.rpartition("/site-packages/")[2] if "/site-packages/" in path else ""

    return _DIRECTORIES.sub(known, text)


def _inside(path: str) -> str | None:
    """What follows the folder of the built package; None outside of it."""
    _, folder, rest = f"/{path}".rpartition(f"/{_OUR_COPY}/")
    return rest if folder else None


def own_trace(message: str, module: str) -> str:
    """An exception's message and traceback, of which only the frames in the student's files are left."""
    lines = message.splitlines()
    kept: list[str] = []
    ours = False
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            inside = _inside(frame["path"])
            ours = inside is None
            if inside is not None:
                kept.append(f'  File "torch-ext/{module}/{inside}", line {frame["line"]}{frame["where"]}')
            continue
        ours = ours and line.startswith("    ")  # the frame's source line, and the marks below it
        if not ours and not _NATIVE_FRAME.match(line) and not line.startswith("Traceback (most recent"):
            kept.append(line)
    if len(kept) > 1 and kept[-1].strip() and kept[0].endswith(kept[-1].strip()):
        kept.pop()  # the exception's own line, which already stands first
    return without_places("\n".join(kept), module)


def without_numbers(trace: str) -> str:
    """A message and its frames, in which only the lines of code and their places keep their digits."""
    kept: list[str] = []
    code = False
    for line in trace.splitlines():
        code = _FRAME.match(line) is not None or (code and line.startswith("    "))
        kept.append(line if code else _NUMBER.sub("#", line))
    return "\n".join(kept)


def one_line(text: str) -> str:
    """The first line of a student's or tool's text, clean and bounded: for use within a line of ours."""
    lines = [line.strip() for line in clean(text).splitlines() if line.strip()]
    return shorten(lines[0], LINE_CHARS) if lines else ""


def quotation(parts: Sequence[str], tokens: int) -> str:
    """As many parts as fit into `tokens`, whole and in order; the first one that does not is cut."""
    kept: list[str] = []
    left = tokens
    for index, part in enumerate(parts):
        lines = list(_marked(part.splitlines()))
        cost = _cost(lines)
        if cost <= left:
            kept += lines
            left -= cost
            continue
        if index == 0 or not kept:
            fitting = list(_fitting(lines, left))
            kept += fitting
            kept.append(f"{_MARK}... ({len(lines) - len(fitting)} more lines left out)")
            index += 1
        if index < len(parts):
            kept.append(f"{_MARK}... ({len(parts) - index} more left out)")
        break
    return "\n".join(kept)


def _marked(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        # Splitting once more: cleaning may leave a character that some reader takes for a line's end.
        for piece in clean(line).splitlines():
            if piece.strip():
                yield f"{_MARK}{shorten(piece.rstrip(), LINE_CHARS)}"


def _fitting(lines: Iterable[str], tokens: int) -> Iterator[str]:
    for line in lines:
        tokens -= _cost([line])
        if tokens < 0:
            return
        yield line


def _cost(lines: Sequence[str]) -> int:
    return estimate_tokens("\n".join([*lines, ""])) if lines else 0
