"""Finds claims in a skill that contradict known facts about Hopper, kernel-builder, and the boards.

A line that denies something ("not", "wrong", "refused") is no claim about programming. A clause or table cell
is a claim about a board only if it consists of board, figures and filler words.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Final, NamedTuple

from harness.records import Record
from harness.skills.spec import SkillFinding, error, warning

_FLAGS: Final = re.IGNORECASE | re.MULTILINE
# A space of a pattern matches a line break too, except in a character class.
_SPACE = re.compile(r" (?![^\[\]]*\])")
_FACT_DENIAL = re.compile(
    r"\b(?:no|not|never|neither|nor|cannot|without|wrong|false|myth|mistake\w*|instead|avoid|unlike|rather|contrary"
    r"|refuse[sd]?|error|errors|fails?|old|older|legacy|obsolete|outdated|circulate\w*)\b|n't\b",
    re.IGNORECASE,
)


class Fact(Record):
    """One fact, and the patterns of claims that contradict it."""

    id: str
    claim: str
    value: str
    source: str
    wrong: tuple[str, ...]
    """Regular expressions over the whole text; a space matches a line break too."""
    about: str | None = None
    unless: str | None = None
    breaks_the_build: bool = False
    """Code that follows the claim does not build with kernel-builder."""


@functools.cache
def known_facts() -> tuple[Fact, ...]:
    """All of facts.toml."""
    text = (resources.files("harness.skills") / "facts.toml").read_text(encoding="utf-8")
    return tuple(Fact.model_validate(fields) for fields in tomllib.loads(text)["fact"])


def fact_findings(
    file: str, text: str, *, kernel_builder: bool = True, only_builds: bool = False
) -> list[SkillFinding]:
    """Each line of `text` that contradicts a fact, once per fact.

    Code that does not build is an error if the text is about kernel-builder, else a warning; with
    `only_builds` nothing else is looked for.
    """
    found: dict[tuple[str, int], SkillFinding] = {}
    for fact in known_facts():
        report = error if fact.breaks_the_build and kernel_builder else warning
        for pattern in fact.wrong if fact.breaks_the_build or not only_builds else ():
            for match in re.finditer(_SPACE.sub(r"\\s", pattern), text, _FLAGS):
                start = match.start() + len(match[0]) - len(match[0].lstrip())
                lines = _lines(text, start, match.end())
                if _is_claim(fact, lines):
                    line = text.count("\n", 0, start) + 1
                    said = " ".join(text[start : match.end()].split())
                    message = f"`{said}`: {fact.claim} ({fact.value}; {fact.source})"
                    found[fact.claim, line] = report(file, line, message)
    return list(found.values())


def _lines(text: str, start: int, end: int) -> str:
    """The whole lines that a match spans."""
    after = text.find("\n", end)
    return text[text.rfind("\n", 0, start) + 1 : len(text) if after < 0 else after]


def _is_claim(fact: Fact, lines: str) -> bool:
    if _FACT_DENIAL.search(lines) or (fact.unless is not None and re.search(fact.unless, lines, _FLAGS)):
        return False
    return fact.about is None or re.search(fact.about, lines, _FLAGS) is not None


_BOARD = re.compile(r"\b(?P<board>H100|H200|Hopper)\b", re.IGNORECASE)
_FILLER = re.compile(
    r"\b(?:is|are|has|have|with|offers|provides|features|contains|comes|of|on|an?|the|its?|all|at|up to|there"
    r"|total|target|size|cache|about|around|approximately|roughly|nearly|each|SM|SXM5?|PCIe|NVL|GPUs?|boards?"
    r"|chips?|NVIDIA|Tensor Core|CUDA|80 ?GB|141 ?GB|arch(?:itecture)?|accelerator|devices?)\b"
    r"|'s\b|->|[\s:=(),|~≈*_`–—→-]",
    re.IGNORECASE,
)
_LINK: Final = r"(?:[\s:=(|~≈]|\b(?:is|are|of|has|at|on|an?|the|about|up to|total)\b)*"
_SENTENCE = re.compile(r"(?:[^.;!?\n]|\.(?=\w)|\n(?!\s*(?:\n|[-*|#>+]|//|\d+\.)))+")
_CLAUSE = re.compile(r"(?:(?!,(?!\d{3}\b)|\b(?:and|but|while|so)\b)(?s:.))+")
_NUMBER: Final = r"(?P<value>\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)\s*"
_SEPARATOR = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
_RESULTS = re.compile(
    r"bench|result|measur|achiev|perform|profil|config|tun|kernel|occupan|migrat", re.IGNORECASE
)
"""Headings of sections whose figures may describe a program, not the board."""
_LONGEST: Final = 1_000
_TOLERANCE: Final = 0.05
"""Relative; covers rounding, and binary units for decimal ones."""


class _Figure(NamedTuple):
    """One figure of a board, and how texts write it."""

    label: str
    value: str
    right: Mapping[str, tuple[float, ...]]
    told: str
    more: tuple[str, ...] = ()
    exact: bool = False


_ARCH: Final = r"\b(?:sm_|compute_)(?P<arch>\d{2,3})a?\b"
_SHARED: Final = r"(?:max(?:imum|\.)? )?shared[ -]?mem(?:ory)?(?: size| capacity)?"
_PER_SM: Final = r"\s*(?:/|per|on each|on an|in each)\s*SM\b"
_KIB: Final = rf"{_NUMBER}(?P<unit>K)i?B\b"
FIGURES: Final = (
    _Figure(
        r"\b(?:compute[ _-]?cap(?:ability)?\.?|CC\b)",
        r"(?P<value>\d{1,2}\.\d)\b",
        {"H100": (9.0,), "H200": (9.0,), "HOPPER": (9.0,)},
        "compute capability 9.0 (sm_90)",
        (rf"\b(?:compute[ _-]?cap(?:ability)?\.?|CC\b){_LINK}{_ARCH}", _ARCH),
        exact=True,
    ),
    _Figure(
        r"(?:SMs\b|\bSM count\b|\b(?:number of |num )SMs\b|\bstreaming multiprocessors\b)",
        rf"{_NUMBER}(?!\.\d)",
        {"H100": (132, 114), "H200": (132,)},
        "132 SMs (an H100 PCIe board has 114)",
        exact=True,
    ),
    _Figure(
        rf"\b{_SHARED}{_PER_SM}",
        _KIB,
        {"H100": (228,), "H200": (228,), "HOPPER": (228,)},
        "228 KB of shared memory per SM, 227 KB for one block",
        (rf"\b{_SHARED}{_LINK}{_KIB}{_PER_SM}",),
    ),
    _Figure(
        rf"\bmax(?:imum|\.)? {_SHARED}\s*(?:/|per)\s*(?:thread )?block\b",
        _KIB,
        {"H100": (227,), "H200": (227,), "HOPPER": (227,)},
        "227 KB of shared memory for one block, 228 KB per SM",
    ),
    _Figure(
        r"\bL2(?: cache)?(?: size| capacity)?\b",
        rf"{_NUMBER}(?P<unit>M)i?B\b",
        {"H100": (50,), "H200": (50, 60)},
        "50 MB of L2 cache",
    ),
    _Figure(
        r"\b(?:(?:peak |max |global |GPU |mem(?:ory)? |HBM\d?e? |DRAM )*(?:bandwidth|BW)\b|HBM\d?e?\b)",
        rf"{_NUMBER}(?P<unit>[TG])i?B(?:/s(?:ec)?|ps)\b",
        {"H100": (3.35, 2.0, 3.9, 3.0), "H200": (4.8,)},
        "3.35 TB/s of memory bandwidth (H100 SXM; PCIe 2.0, NVL 3.9; H200 4.8)",
    ),
)
_PATTERNS: Final = tuple(
    (figure, re.compile(pattern, re.IGNORECASE))
    for figure in FIGURES
    for pattern in (
        *figure.more,
        rf"(?<![\w.]){figure.value}{_LINK}{figure.label}",
        rf"{figure.label}{_LINK}{figure.value}",
    )
)
_BANDWIDTH: Final = FIGURES[-1]


class _Claim(NamedTuple):
    """A figure that a text states for boards."""

    figure: _Figure
    value: float
    boards: frozenset[str]
    at: int
    said: str


def hardware_findings(file: str, text: str) -> list[SkillFinding]:
    """Each wrong figure of an H100 or H200."""
    found: dict[tuple[int, str], SkillFinding] = {}
    for claim in (*_in_sentences(text), *_in_tables(text)):
        right = [value for board in claim.boards for value in claim.figure.right.get(board, ())]
        if not right:
            continue
        line = text.count("\n", 0, claim.at) + 1
        message = f"`{claim.said}`: the boards have {claim.figure.told} (NVIDIA's datasheets and CUDA guide)"
        tolerance = 0.0 if claim.figure.exact else _TOLERANCE
        if all(abs(claim.value - value) > tolerance * value for value in right):
            found.setdefault((line, claim.figure.told), error(file, line, message))
    return list(found.values())


def _stated(clause: str) -> list[tuple[_Figure, float]] | None:
    """The figures of a clause; None if it contains more than boards, figures and filler words."""
    rest = _BOARD.sub(" ", clause)
    found: list[tuple[_Figure, float]] = []
    for figure, pattern in _PATTERNS:
        found += [(figure, _value(figure, match)) for match in pattern.finditer(rest)]
        rest = pattern.sub(" ", rest)
    return None if _FILLER.sub("", rest) else found


def _value(figure: _Figure, match: re.Match[str]) -> float:
    """In the figure's unit: sm_90 is 9.0, and GB/s become TB/s."""
    groups = match.groupdict()
    if groups.get("arch"):
        return int(groups["arch"]) / 10
    scale = 0.001 if figure is _BANDWIDTH and groups["unit"].upper() == "G" else 1.0
    return float(groups["value"].replace(",", "")) * scale


def _boards_in(text: str) -> frozenset[str]:
    return frozenset(match["board"].upper() for match in _BOARD.finditer(text))


def _in_sentences(text: str) -> Iterator[_Claim]:
    """Figures in clauses that name a board, or that follow such a clause with a figure."""
    for sentence in _SENTENCE.finditer(text):
        words = sentence[0]
        if len(words) > _LONGEST or "|" in words or not _BOARD.search(words):
            continue
        before: frozenset[str] = frozenset()
        for clause in _CLAUSE.finditer(words):
            stated, boards = _stated(clause[0]), _boards_in(clause[0]) or before
            before = boards if stated else frozenset()
            said = " ".join(clause[0].split())
            at = sentence.start() + clause.start() + len(clause[0]) - len(clause[0].lstrip())
            yield from (_Claim(figure, value, boards, at, said) for figure, value in stated or ())


def _in_tables(text: str) -> Iterator[_Claim]:
    """Figures in tables with a board per column or row, or below a heading that names a board."""
    heading, at = "", 0
    rows: list[tuple[int, str]] = []
    for line in (*text.split("\n"), ""):
        if "|" in line:
            rows.append((at, line))
        else:
            if len(rows) > 2 and _SEPARATOR.fullmatch(rows[1][1][:_LONGEST]):
                yield from _table_claims(rows, heading)
            rows = []
            heading = line.strip("# ") if _HEADING.match(line) else heading
        at += len(line) + 1


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("*`_ ") for cell in line[:_LONGEST].strip().strip("|").split("|")]


def _table_claims(rows: list[tuple[int, str]], heading: str) -> Iterator[_Claim]:
    """Each cell is read as a clause of column title, row label and value.

    A table with only one kind of figure, other than the compute capability, may be about anything.
    """
    header, body = _cells(rows[0][1]), [(at, _cells(line)) for at, line in rows[2:]]
    named = any(_BOARD.search(cell) for cell in (*header, *(row[0] for _, row in body)))
    claims: list[_Claim] = []
    for at, (label, *cells) in body if not _RESULTS.search(heading) else ():
        for title, cell in zip(header[1:] if named else [heading], cells, strict=False):
            clause = f"{title} {label} {cell}"
            boards = _boards_in(clause)
            boards = boards - {"HOPPER"} or boards
            if len(boards) == 1:
                claims += [_Claim(*one, boards, at, f"{label} | {cell}") for one in _stated(clause) or ()]
    kinds = {claim.figure.told for claim in claims}
    if len(kinds) > 1 or FIGURES[0].told in kinds:
        yield from claims
