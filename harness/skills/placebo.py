"""A placebo for a skill: a text of the same length and format about bread.

A longer prompt alone changes what a model writes, so a skill helps only if it beats a text that is as long
and looks the same. A placebo is a function of the skill: headings, lists, tables, code blocks and lengths
stay (within a few bytes per paragraph), and no word does.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from harness.records import Skill, digest_of
from harness.student.fences import fenced_blocks

VERSION: Final = 1
_NAMES: Final = ("sourdough-baking", "rye-bread", "flatbreads", "laminated-dough")
_DOUGHS: Final = ("wheat dough", "rye dough", "spelt dough", "starter", "leaven", "poolish", "brioche dough")
_STEPS: Final = ("rests", "is folded", "ferments", "proves", "is shaped", "cools", "is kneaded", "relaxes")
_PLACES: Final = ("in a bowl", "in a basket", "on linen", "under a cloth", "in a tin", "on the bench")
_EFFECTS: Final = (
    "the crumb turns open", "the crust stays thin", "acids form slowly", "the loaf keeps its shape",
    "the taste turns milder", "the surface does not tear",
)  # fmt: skip
_WHEN: Final = (
    "In the morning", "After mixing", "On warm days", "With old flour", "Before baking", "At dusk",
)  # fmt: skip
_TOPICS: Final = (
    "Flour", "Water", "Salt", "Leaven", "Shaping", "Steam", "Storage", "Oven", "Basket", "Scoring",
)  # fmt: skip
_LONGER: Final = 4
"""Bytes by which a line of code may grow to make up for shorter lines before it."""
_FILLERS: Final = {
    1 + len(word): f" {word}"
    for word in ("so", "now", "then", "again", "evenly", "quietly", "together", "carefully", "thereafter")
}

_FRAME = re.compile(r"^(?P<lead>\s*(?:#{1,6}\s+|[-*+]\s+(?:\[.\]\s+)?|\d+[.)]\s+|>\s*)?)(?P<text>.*)$")


def placebo(skill: Skill, index: int = 0) -> Skill:
    """The placebo of `skill`; placebos of one prompt have different indices and names."""
    draw = random.Random(f"{VERSION} {index} {skill.digest}")
    return Skill(
        name=_NAMES[index % len(_NAMES)],
        description=_prose(draw, len(skill.description.encode())),
        body=_document(draw, skill.body),
        files=skill.files,
        digest=digest_of(["placebo", VERSION, index, skill.digest]),
        documents={
            _path(path, number): _document(draw, text)
            for number, (path, text) in enumerate(sorted(skill.documents.items()))
        },
    )


def _path(path: str, number: int) -> str:
    """A neutral file name; SKILL.md keeps its name."""
    if path == "SKILL.md":
        return path
    folder, _, name = path.rpartition("/")
    renamed = f"bread-{number}{PurePosixPath(name).suffix}"
    return f"{folder}/{renamed}" if folder in ("references", "scripts", "assets") else renamed


def _document(draw: random.Random, markdown: str) -> str:
    """The document line by line: its markup stays, its words are replaced."""
    made = _Made()
    paragraph: list[str] = []
    blocks = {block.line: block for block in fenced_blocks(markdown)}
    code, last = range(0), 0

    def end_paragraph() -> None:
        if paragraph:
            for replaced in _paragraph(draw, paragraph, made.short(paragraph)):
                made.append(replaced)
            paragraph.clear()

    for number, line in enumerate(markdown.split("\n"), 1):
        block = blocks.get(number)
        if number in code:
            made.append(line if number == last else _schedule(draw, line, min(made.short(()), _LONGER)))
        elif block is not None:
            code, last = range(block.line + 1, block.end), block.end - 1 if block.closed else 0
            end_paragraph()
            kept = line.rstrip().removesuffix(block.info).rstrip()
            made.append(kept + ("text" if block.info else ""))
        elif not line.strip():
            end_paragraph()
            made.append(line)
        elif line.lstrip().startswith("|"):
            end_paragraph()
            made.append(_row(draw, line))
        else:
            framed = _FRAME.match(line)
            if framed is None or framed["lead"].strip():
                end_paragraph()
            paragraph.append(line)
            if framed is not None and framed["lead"].lstrip().startswith("#"):
                end_paragraph()
        made.read_bytes += len(line.encode()) + 1
    end_paragraph()
    return "\n".join(made.lines)


class _Made:
    """The lines so far, and how many bytes shorter they are than what they replace."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.read_bytes = 0
        self._made_bytes = 0

    def append(self, line: str) -> None:
        self.lines.append(line)
        self._made_bytes += len(line) + 1

    def short(self, waiting: Iterable[str]) -> int:
        """Missing bytes compared with the lines read, without `waiting` ones that are not replaced yet."""
        waiting_bytes = sum(len(line.encode()) + 1 for line in waiting)
        return max(0, self.read_bytes - waiting_bytes - self._made_bytes)


def _paragraph(draw: random.Random, lines: list[str], more: int) -> list[str]:
    """A heading, list item or paragraph in new words, `more` bytes longer, with the same line breaks."""
    framed = _FRAME.match(lines[0])
    lead = framed["lead"] if framed else ""
    text = [lines[0][len(lead) :], *lines[1:]]
    if lead.lstrip().startswith("#"):
        size = len(text[0].encode())
        return [lead + _fitted(f"{draw.choice(_TOPICS)} and {_words(draw, size)}", size)]
    size = sum(len(line.strip().encode()) + 1 for line in text) - 1 + more
    words = deque(_prose(draw, size).split(" "))
    made: list[str] = []
    for position, line in enumerate(text):
        indent = line[: len(line) - len(line.lstrip())]
        last = position == len(text) - 1
        room, taken = len(line.strip()), list[str]()
        while words and (last or not taken or len(words[0]) <= room):
            taken.append(words.popleft())
            room -= len(taken[-1]) + 1
        made.append((lead if position == 0 else "") + indent + " ".join(taken))
    return made


def _row(draw: random.Random, line: str) -> str:
    """A table row with other contents; a separator stays."""
    if not line.strip().strip("|-: "):
        return line
    cells = line.split("|")
    return "|".join(f" {_words(draw, len(c.strip().encode()))} " if c.strip() else c for c in cells)


def _schedule(draw: random.Random, line: str, more: int) -> str:
    """A line of a code block as a baking schedule, `more` bytes longer, with the same indentation."""
    if not line.strip():
        return line
    indent = line[: len(line) - len(line.lstrip())]
    entry = f"{draw.randrange(24):02}:{draw.randrange(60):02} "
    return indent + _fitted(entry + _words(draw, len(line) + more), len(line.strip().encode()) + more)


def _words(draw: random.Random, size: int) -> str:
    """Words without a sentence, as in a table cell."""
    text = draw.choice(_DOUGHS)
    while len(text) < size:
        text += f" {draw.choice(_STEPS)} {draw.randrange(5, 90)} min {draw.choice(_PLACES)}"
    return _fitted(text, size)


def _prose(draw: random.Random, size: int) -> str:
    """Sentences of `size` bytes in all."""
    text = ""
    while len(text) < size:
        text += (" " if text else "") + _sentence(draw)
    return _fitted(text, size, ".")


def _sentence(draw: random.Random) -> str:
    dough, step, place = draw.choice(_DOUGHS), draw.choice(_STEPS), draw.choice(_PLACES)
    minutes, degrees = draw.randrange(10, 240, 5), draw.randrange(4, 31)
    when, effect = draw.choice(_WHEN), draw.choice(_EFFECTS)
    return draw.choice(
        (
            f"{when} a {dough} {step} for {minutes} minutes {place}, and {effect}.",
            f"A {dough} that {step} {place} at {degrees} degrees is ready after {minutes} minutes.",
            f"When {effect}, the {dough} {step} {place} for {minutes} minutes more.",
            f"Weigh {draw.randrange(50, 900, 10)} g for a {dough}; below {degrees} degrees {effect}.",
        )
    )


def _fitted(text: str, size: int, end: str = "") -> str:
    """`text` (ASCII) cut to `size` bytes at a word, with a word added that fills the gap."""
    cut = text[: max(0, size - len(end))]
    whole = cut if text[len(cut) : len(cut) + 1] in ("", " ") else cut.rpartition(" ")[0]
    whole = whole.rstrip(" ,;")
    if not whole:
        return cut.rstrip()
    return whole + _FILLERS.get(size - len(end) - len(whole), "") + end
