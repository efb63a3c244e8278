"""Sanitizes tool output and exceptions before they are quoted in feedback.

Every quoted line begins with "> ", so it cannot pass for the harness's text. Absolute paths are removed. A
quotation keeps to its token limit, apart from the lines that say what was left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harness.text import clean, estimate_tokens, shorten

LINE_CHARS: Final = 400
_MARK: Final = "> "

# At least two parts, since `/x` may be a division; after a word, dot or colon it is no absolute path.
_DIRECTORIES = re.compile(r"(?<![\w.:/~*-])/(?:[^\s/:;'\"`,()<>|]+/)+")
_FRAME = re.compile(r"^\s*File \"(?P<path>[^\"\n]{1,1000})\", line (?P<line>\d{1,9})(?P<where>.*)$")
_NUMBER = re.compile(r"\d+")
_NATIVE_FRAME = re.compile(r"^(?:frame )?#\d+:? ")
_OUR_COPY: Final = "project"
"""The folder of the built package in a worker."""


def without_places(text: str, module: str) -> str:
    """`text` with absolute paths replaced by paths in the package `module`, or by file names."""

    def known(found: re.Match[str]) -> str:
        path = found[0]
        inside = _inside(path)
        if inside is not None:
            return f"torch-ext/{module}/{inside}"
        return path.rpartition("/site-packages/")[2] if "/site-packages/" in path else ""

    return _DIRECTORIES.sub(known, text)


def _inside(path: str) -> str | None:
    """The path in the built package; None outside of it."""
    _, folder, rest = f"/{path}".rpartition(f"/{_OUR_COPY}/")
    return rest if folder else None


def own_trace(message: str, module: str) -> str:
    """An exception's message and traceback, with only the frames in the student's files."""
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
        ours = ours and line.startswith("    ")  # the frame's source line and markers
        if not ours and not _NATIVE_FRAME.match(line) and not line.startswith("Traceback (most recent"):
            kept.append(line)
    if len(kept) > 1 and kept[-1].strip() and kept[0].endswith(kept[-1].strip()):
        kept.pop()  # the exception's line, which is also the first one
    return without_places("\n".join(kept), module)


def without_numbers(trace: str) -> str:
    """A message and its frames with digits replaced, except in lines of code and their positions."""
    kept: list[str] = []
    code = False
    for line in trace.splitlines():
        code = _FRAME.match(line) is not None or (code and line.startswith("    "))
        kept.append(line if code else _NUMBER.sub("#", line))
    return "\n".join(kept)


def one_line(text: str) -> str:
    """The first line of untrusted text, cleaned and shortened, for use within a line of feedback."""
    lines = [line.strip() for line in clean(text).splitlines() if line.strip()]
    return shorten(lines[0], LINE_CHARS) if lines else ""


def quotation(parts: Sequence[str], tokens: int) -> str:
    """As many whole parts as fit into `tokens`, in order; if the first one does not fit, it is cut."""
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
        # Cleaning may leave characters that some readers treat as a line break.
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
