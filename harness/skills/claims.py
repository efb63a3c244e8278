"""Finds claims in a skill that contradict known facts about Hopper, kernel-builder, and the boards.

A line that denies something ("not", "wrong", "refused") is no claim. A figure is attributed to an H100 or
H200 only if nothing but a verb and other figures stands between them in a sentence, if they share a row or
column of a table, or if the table's heading names that board alone.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Final, NamedTuple

from harness.records import Record
from harness.skills.spec import SkillFinding, error, warning

# --- facts of programming ------------------------------------------------------------------------

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
    """The right wording, a clause."""
    value: str
    source: str
    wrong: tuple[str, ...]
    """Regular expressions over the whole text; a space matches a line break too."""
    about: str | None = None
    """Must match in the lines of a claim."""
    unless: str | None = None
    """Must not match in the lines of a claim."""
    breaks_the_build: bool = False
    """Code that follows the claim does not build with kernel-builder."""


@functools.cache
def known_facts() -> tuple[Fact, ...]:
    """All of facts.toml."""
    text = (resources.files("harness.skills") / "facts.toml").read_text(encoding="utf-8")
    return tuple(Fact.model_validate(fields) for fields in tomllib.loads(text)["fact"])


def fact_findings(file: str, text: str, *, kernel_builder: bool = True) -> list[SkillFinding]:
    """Each line of `text` that contradicts a fact, once per fact.

    Code that does not build is an error if the text is about kernel-builder, else a warning.
    """
    return _findings(known_facts(), file, text, kernel_builder)


def unbuildable(file: str, text: str, *, kernel_builder: bool = True) -> list[SkillFinding]:
    """Those of the findings that say that code does not build."""
    return _findings([f for f in known_facts() if f.breaks_the_build], file, text, kernel_builder)


def _findings(facts: Iterable[Fact], file: str, text: str, kernel_builder: bool) -> list[SkillFinding]:
    found: dict[tuple[str, int], SkillFinding] = {}
    for fact in facts:
        report = error if fact.breaks_the_build and kernel_builder else warning
        for pattern in fact.wrong:
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


# --- figures of the boards -----------------------------------------------------------------------

_BOARDS = re.compile(
    r"\b(?P<board>H100|H200|Hopper)\b(?:\s*\(\s*(?:H100|SXM5?|PCIe|NVL)\s*\))?", re.IGNORECASE
)
_OTHERS: Final = (
    r"(?:\b(?:[ABTVLP]\d{1,3}[A-Z]?|G[BH]\d{3}|[BH]20|H800|RTX|Blackwell|Ampere|Ada|Lovelace|Turing|Volta|Pascal"
    r"|MI\d{3}X?|R9700|[2345]0[6789]0|previous generation)\b)"
)
_WHOLE = re.compile(
    r"\b(?:full|die|GH100|MIG|DGX|HGX|nodes?|pairs?|slices?|partitions?|GPCs?|TPCs?|half|respectively|\d+\s*[x×])\b",
    re.IGNORECASE,
)
"""Words that make the figure one of a part, or of several boards."""
_DENIAL = re.compile(
    r"\b(?:no|not|never|wrong|false\w*|myth|mistake\w*|claims?|incorrect\w*|if|whether|pretend|suppose|measured"
    r"|used|in use|use|uses|remain\w*|left|free|reserved|unused|busy|idle)\b|n't\b",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"\b(?:is|are|has|have|with|offers|provides|features|contains|comes|of|an?|the|its?|all|and|at|up to"
    r"|total|SXM5?"
    r"|PCIe|NVL|GPUs?|boards?|chips?|NVIDIA|Tensor Core|about|around|approximately|roughly|nearly|each|SM"
    r"|CUDA|80 ?GB|architecture|accelerator|devices?"
    r"|141 ?GB|Hopper|H[12]00|size|cache)\b|'s\b|[\s:=(),|~≈*_`–—→-]|->"
)
_SENTENCE = re.compile(r"(?:[^.;!?\n]|\.(?=\w)|\n(?!\s*(?:\n|[-*|#>+]|//|\d+\.)))+")
_NUMBER: Final = r"(?P<value>\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)\s*"
_SEPARATOR = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_HEADING = re.compile(r" {0,3}#{1,6}\s")
_MEASURED = re.compile(r"bench|result|measur|achiev", re.IGNORECASE)
_RESULTS = re.compile(r"perform|profil|config|tun|kernel|occupan|migrat", re.IGNORECASE)
"""Headings of sections whose figures may describe a program, not the board."""
_LONGEST: Final = 1_000
"""Longest sentence that is read, in characters."""
_TOLERANCE: Final = 0.05
"""Relative; covers rounding, and binary units for decimal ones."""
_REACHED: Final = 0.7
"""Share of the peak bandwidth above which a figure may be a measurement."""


class _Figure(NamedTuple):
    """One figure of a board, and how texts write it."""

    label: str
    value: str
    right: Mapping[str, tuple[float, ...]]
    """Right values by board, of its variants too."""
    told: str
    spec: str
    """The label of a table's row or column, which is stricter."""
    exact: bool = False


_ARCH: Final = r"(?:sm_|compute_)(?P<arch>\d{2,3})a?\b"
_SHARED: Final = r"shared[ -]?mem(?:ory)?"
_PER_SM: Final = r"\s*(?:/|per|on each|on an|in each)\s*SM\b"
FIGURES: Final = (
    _Figure(
        r"(?:compute[ _-]?cap(?:ability)?\.?)",
        rf"(?:{_ARCH}|(?P<value>\d{{1,2}}\.\d)\b)(?!\+| ?(?:or|and) (?:high|lat|new|abo|up)\w*)",
        {"H100": (9.0,), "H200": (9.0,), "HOPPER": (9.0,)},
        "compute capability 9.0 (sm_90)",
        r"(?:CUDA )?compute[ _-]?cap(?:ability)?\.?|CC|arch(?:itecture)?|sm[ _]arch",
        exact=True,
    ),
    _Figure(
        r"(?:SMs|SM count|number of SMs|streaming multiprocessors)",
        rf"{_NUMBER}(?!\.\d)",
        {"H100": (132, 114), "H200": (132,)},
        "132 SMs (an H100 PCIe board has 114)",
        r"(?:number of |num |# ?)?(?:SMs|streaming multiprocessors)|SM count",
        exact=True,
    ),
    _Figure(
        rf"(?:(?:max(?:imum)? )?{_SHARED}{_PER_SM})",
        rf"{_NUMBER}(?P<unit>K)i?B\b",
        {"H100": (228,), "H200": (228,), "HOPPER": (228,)},
        "228 KB of shared memory per SM, 227 KB for one block",
        rf"(?:max(?:imum|\.)? )?{_SHARED}(?: (?:size|capacity))?{_PER_SM}",
    ),
    _Figure(
        rf"(?:max(?:imum)? {_SHARED}\s*(?:/|per)\s*(?:thread )?block\b)",
        rf"{_NUMBER}(?P<unit>K)i?B\b",
        {"H100": (227,), "H200": (227,), "HOPPER": (227,)},
        "227 KB of shared memory for one block, 228 KB per SM",
        rf"max(?:imum|\.)? {_SHARED}\s*(?:/|per)\s*(?:thread )?block",
    ),
    _Figure(
        r"(?:L2(?: cache)?(?: size| capacity)?)",
        rf"{_NUMBER}(?P<unit>M)i?B\b",
        {"H100": (50,), "H200": (50, 60)},
        "50 MB of L2 cache",
        r"L2(?: cache)?(?: size| capacity)?",
    ),
    _Figure(
        r"(?:(?:peak |HBM\d?e? |DRAM |GPU |global )*(?:memory |HBM\d?e? |DRAM )(?:bandwidth|BW)|HBM\d?e?"
        r"|(?:peak )?bandwidth)",
        rf"{_NUMBER}(?P<unit>[TG])i?B(?:/s(?:ec)?|ps)\b",
        {"H100": (3.35, 2.0, 3.9, 3.0), "H200": (4.8,)},
        "3.35 TB/s of memory bandwidth (H100 SXM; PCIe 2.0, NVL 3.9; H200 4.8)",
        r"(?:peak |max )?(?:(?:global |GPU )?mem(?:ory)?|HBM\d?e?|DRAM) (?:bandwidth|BW)",
    ),
)
_BANDWIDTH: Final = FIGURES[-1]
_VARIANTS: Final = {114.0: "PCIe", 2.0: "PCIe", 3.9: "NVL"}
"""Values of only one variant of the H100."""


class _Claim(NamedTuple):
    """A figure that a text states for a board."""

    figure: _Figure
    value: float
    boards: frozenset[str]
    about: str
    """Words that may name a variant of the board."""
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
        near = [value for value in right if _same(claim.figure, claim.value, value)]
        if not near and not _maybe_measured(claim, right):
            found.setdefault((line, claim.figure.told), error(file, line, message))
        elif near and "H100" in claim.boards and all(value in _VARIANTS for value in near):
            variant = _VARIANTS[near[0]]
            if not re.search(variant, claim.about, re.IGNORECASE):
                report = error if re.search("SXM", claim.about, re.IGNORECASE) else warning
                told = report(file, line, f"{message}; that is the {variant} board's")
                found.setdefault((line, claim.figure.told), told)
    return list(found.values())


def _same(figure: _Figure, value: float, right: float) -> bool:
    return value == right if figure.exact else abs(value - right) <= _TOLERANCE * right


def _maybe_measured(claim: _Claim, right: Sequence[float]) -> bool:
    return claim.figure is _BANDWIDTH and _REACHED * right[0] <= claim.value < right[0]


def _value(figure: _Figure, match: re.Match[str]) -> float:
    """In the figure's unit: sm_90 is 9.0, and GB/s become TB/s."""
    groups = match.groupdict()
    if groups.get("arch"):
        return int(groups["arch"]) / 10
    scale = 0.001 if figure is _BANDWIDTH and groups["unit"].upper() == "G" else 1.0
    return float(groups["value"].replace(",", "")) * scale


# --- figures in sentences ------------------------------------------------------------------------


def _phrases(figure: _Figure) -> Iterator[re.Pattern[str]]:
    """`132 SMs`, `L2 cache: 50 MB`, and `the L2 of an H100 is 50 MB`."""
    label, value = figure.label, figure.value
    approx = r"(?:\s*(?:is|are|of|has|at|:|=|\()|)\s*(?:about |~|≈|up to )?"
    yield re.compile(rf"(?<![\w.]){value}\s*(?:of |total |\(?)?{label}", re.IGNORECASE)
    yield re.compile(rf"\b{label}{approx}{value}", re.IGNORECASE)
    if figure is FIGURES[0]:
        yield re.compile(rf"(?<![\w.]){_ARCH}", re.IGNORECASE)


_PHRASES: Final = tuple((figure, pattern) for figure in FIGURES for pattern in _phrases(figure))
_REVERSED: Final = tuple(
    (
        figure,
        re.compile(
            rf"\b{figure.label} ?(?:of |on |in |for |: ?)(?:an? |the )?(?:NVIDIA )?"
            r"(?P<board>H100|H200|Hopper)\b"
            rf"(?: (?:SXM5?|PCIe|GPUs?))*\s*(?:is|are|has|:|=)\s*{figure.value}",
            re.IGNORECASE,
        ),
    )
    for figure in FIGURES
)


def _in_sentences(text: str) -> Iterator[_Claim]:
    for sentence in _SENTENCE.finditer(text):
        words = sentence[0]
        if len(words) > _LONGEST:
            continue
        if _BOARDS.search(words) and "|" not in words and not _WHOLE.search(words):
            for claim in _stated(words):
                yield claim._replace(at=sentence.start() + claim.at)


def _stated(words: str) -> Iterator[_Claim]:
    """The claims of one sentence."""
    phrases = [(figure, match) for figure, pattern in _PHRASES for match in pattern.finditer(words)]
    spans = sorted(((match.start(), match.end()) for _, match in phrases), key=lambda span: span[0] - span[1])
    boards = frozenset(found["board"].upper() for found in _BOARDS.finditer(words))
    for figure, match in phrases:
        board = _board_of(words, match, spans)
        if board is not None and not _denied(words, board, match):
            start, end = min(board.start(), match.start()), max(board.end(), match.end())
            said = " ".join(words[start:end].split())
            yield _Claim(figure, _value(figure, match), boards, words, board.start(), said)
    for figure, pattern in _REVERSED:
        for match in pattern.finditer(words):
            if not _denied(words, match, match):
                named = frozenset({match["board"].upper()})
                yield _Claim(figure, _value(figure, match), named, words, match.start(), match[0])


def _board_of(words: str, match: re.Match[str], spans: Sequence[tuple[int, int]]) -> re.Match[str] | None:
    """The board that a figure refers to: before it, apart from verbs and other figures, or right after it."""
    after = re.match(
        rf"\s*(?:,? ?(?:on|of|in|for|\(|:|=)\s*)?(?:an? |the )?(?:{_OTHERS})",
        words[match.end() :],
        re.IGNORECASE,
    )
    if after is not None:
        return None
    before = [one for one in _BOARDS.finditer(words) if one.end() <= match.start()]
    if before:
        board = before[-1]
        between = words[board.end() : match.start()]
        for start, end in spans:
            if board.end() <= start and end <= match.start():
                between = between.replace(words[start:end], " ")
        joined = re.search(
            rf"{_OTHERS}\s*(?:/|and|or|&|\+|, and)\s*(?:the )?(?:NVIDIA )?$",
            words[: board.start()],
            re.IGNORECASE,
        )
        return board if not _FILLER.sub("", between) and joined is None else None
    if re.search(_OTHERS, words[: match.start()], re.IGNORECASE):
        return None
    follow = re.compile(r"\s*(?:on|of|in|for|\()\s*(?:an? |the )?(?:NVIDIA )?").match(words, match.end())
    return _BOARDS.match(words, follow.end()) if follow is not None else None


def _denied(words: str, board: re.Match[str], match: re.Match[str]) -> bool:
    """Whether the clause denies the figure, or refers to a used part."""
    start, end = min(board.start(), match.start()), max(board.end(), match.end())
    before = words[:start].rpartition(",")[2]
    after = re.split(r",|\band\b|\bbut\b|\bso\b", words[end:], maxsplit=1)[0]
    return _DENIAL.search(before) is not None or _DENIAL.search(after) is not None


# --- figures in tables ---------------------------------------------------------------------------


def _in_tables(text: str) -> Iterator[_Claim]:
    """Figures in tables with a board per column or row, or below a heading that names one board alone."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    headings: list[str] = []
    done, fenced = 0, False
    for number, line in enumerate(lines[:-1]):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if not fenced and _HEADING.match(line):
            headings = [*(one for one in headings if _level(one) < _level(line)), line]
        if number < done or "|" not in line or not _SEPARATOR.fullmatch(lines[number + 1][:_LONGEST]):
            continue
        rows = [_cells(line)]
        for below in lines[number + 2 :]:
            if "|" not in below:
                break
            rows.append(_cells(below))
        done = number + 1 + len(rows)
        section = "".join(headings[-1:])
        if _RESULTS.search(section) is None and _MEASURED.search(" ".join(headings)) is None:
            naming = [h for h in headings if _BOARDS.search(h) or re.search(_OTHERS, h, re.IGNORECASE)]
            for row, claim in _table_claims(rows, "".join(naming[-1:])):
                yield claim._replace(at=starts[number if row == 0 else number + 1 + row])


def _level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("# "))


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("*`_ ") for cell in line.strip().strip("|").split("|")]


def _only_board(text: str) -> str | None:
    """The one board that a text names; None if it names several, or another GPU."""
    named = {match["board"].upper() for match in _BOARDS.finditer(text)} - {"HOPPER"}
    if not named and re.search(r"\bHopper\b", text, re.IGNORECASE):
        named = {"HOPPER"}
    if len(named) != 1 or re.search(_OTHERS, text, re.IGNORECASE) or _WHOLE.search(text):
        return None
    return named.pop()


def _table_claims(rows: list[list[str]], heading: str) -> Iterator[tuple[int, _Claim]]:
    """Claims with their row, from 1. A table with only one kind of figure is not judged."""
    header, claims = rows[0], list[tuple[int, _Claim]]()
    boards = {column: board for column, cell in enumerate(header) if (board := _only_board(cell)) is not None}
    if not boards and _only_board(heading) is not None and not _BOARDS.search(" ".join(header)):
        boards = {1: _only_board(heading) or ""}
    for number, row in enumerate(rows[1:], 1):
        cells = dict(enumerate(row))
        for column, board in boards.items():
            about = f"{header[column] if column < len(header) else ''} {heading} {cells.get(column, '')}"
            claims += [(number, one) for one in _cell_claims(row[0], cells.get(column, ""), board, about)]
        named = _only_board(row[0]) or ""
        for column, title in enumerate(header[1:], 1) if named else ():
            about = f"{row[0]} {heading} {cells.get(column, '')}"
            claims += [(number, one) for one in _cell_claims(title, cells.get(column, ""), named, about)]
    kinds = {claim.figure.told for _, claim in claims}
    if len(kinds) > 1 or FIGURES[0].told in kinds:
        yield from claims


def _cell_claims(label: str, cell: str, board: str, about: str) -> Iterator[_Claim]:
    for figure in FIGURES:
        whole = f"{label}/SM" if re.search(_PER_SM, cell) else label
        value = re.match(rf"(?:up to |~|≈)?{figure.value}", cell, re.IGNORECASE)
        if value is not None and re.fullmatch(figure.spec, whole, re.IGNORECASE):
            yield _Claim(figure, _value(figure, value), frozenset({board}), about, 0, f"{label} | {cell}")
