"""Finds statements in a skill that contradict the basic figures of H100 and H200.

A figure is held against a board only where the text binds it to that board: in a sentence nothing but a
verb and other figures stands between them; in a table they share a row or column, or the heading names that
board alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from harness.skills.findings import SkillFinding, error, warning

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
"""The figure may be of a part, or of several boards."""
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
"""Sections whose figures may be of a program, not of the board."""
_LONGEST: Final = 1_000
"""Characters of a sentence: what is longer is no sentence."""
_TOLERANCE: Final = 0.05
"""Rounding, and binary units for decimal ones."""
_REACHED: Final = 0.7
"""Share of the peak bandwidth from which on a figure may have been measured."""


class _Figure(NamedTuple):
    """One figure of a board, and the ways to write it."""

    label: str
    value: str
    right: Mapping[str, tuple[float, ...]]
    """By board; what a variant of it has is right too."""
    told: str
    spec: str
    """Label of a table's row or column, where it is stricter."""
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
"""What only this variant of the H100 has."""


class _Claim(NamedTuple):
    """A figure that a text gives for a board."""

    figure: _Figure
    value: float
    boards: frozenset[str]
    about: str
    """The words that may name a variant of the board."""
    at: int
    said: str


def hardware_findings(file: str, text: str) -> list[SkillFinding]:
    """Each wrong figure of an H100 or H200, at its line."""
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
    """In the unit of the figure: sm_90 is 9.0, and GB/s are TB/s."""
    groups = match.groupdict()
    if groups.get("arch"):
        return int(groups["arch"]) / 10
    scale = 0.001 if figure is _BANDWIDTH and groups["unit"].upper() == "G" else 1.0
    return float(groups["value"].replace(",", "")) * scale


# --- sentences -------------------------------------------------------------------------------


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
    for figure, match in phrases:
        board = _bound(words, match, spans)
        if board is not None and not _doubtful(words, board, match):
            boards = frozenset(found["board"].upper() for found in _BOARDS.finditer(words))
            yield _Claim(
                figure, _value(figure, match), boards, words, board.start(), _short(words, board, match)
            )
    for figure, pattern in _REVERSED:
        for match in pattern.finditer(words):
            if not _doubtful(words, match, match):
                yield _Claim(
                    figure,
                    _value(figure, match),
                    frozenset({match["board"].upper()}),
                    words,
                    match.start(),
                    match[0],
                )


def _short(words: str, board: re.Match[str], match: re.Match[str]) -> str:
    start, end = min(board.start(), match.start()), max(board.end(), match.end())
    return " ".join(words[start:end].split())


def _bound(words: str, match: re.Match[str], spans: Sequence[tuple[int, int]]) -> re.Match[str] | None:
    """The board that the phrase is about: before it but for verbs and other figures, or right after it."""
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


def _doubtful(words: str, board: re.Match[str], match: re.Match[str]) -> bool:
    """Whether the clause around it denies it, or speaks of a part that is used."""
    start, end = min(board.start(), match.start()), max(board.end(), match.end())
    before = words[:start].rpartition(",")[2]
    after = re.split(r",|\band\b|\bbut\b|\bso\b", words[end:], maxsplit=1)[0]
    return _DENIAL.search(before) is not None or _DENIAL.search(after) is not None


# --- tables ----------------------------------------------------------------------------------


def _in_tables(text: str) -> Iterator[_Claim]:
    """Figures in tables with boards across or down, or under a heading that names one board alone."""
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
            for row, claim in _judged_table(rows, "".join(naming[-1:])):
                yield claim._replace(at=starts[number if row == 0 else number + 1 + row])


def _level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("# "))


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("*`_ ") for cell in line.strip().strip("|").split("|")]


def _only_board(text: str) -> str | None:
    """The one board that it names; None where it names several, or another GPU."""
    named = {match["board"].upper() for match in _BOARDS.finditer(text)} - {"HOPPER"}
    if not named and re.search(r"\bHopper\b", text, re.IGNORECASE):
        named = {"HOPPER"}
    if len(named) != 1 or re.search(_OTHERS, text, re.IGNORECASE) or _WHOLE.search(text):
        return None
    return named.pop()


def _judged_table(rows: list[list[str]], heading: str) -> Iterator[tuple[int, _Claim]]:
    """Claims with the number of their row, from 1; a table with one known figure may be about anything."""
    down = [(number, row[0], dict(enumerate(row))) for number, row in enumerate(rows) if number]
    header = rows[0]
    claims: list[tuple[int, _Claim]] = []
    boards = {column: board for column, cell in enumerate(header) if (board := _only_board(cell)) is not None}
    if not boards and _only_board(heading) is not None and not _BOARDS.search(" ".join(header)):
        boards = {1: _only_board(heading) or ""}
    for number, label, cells in down:
        for column, board in boards.items():
            about = f"{header[column] if column < len(header) else ''} {heading} {cells.get(column, '')}"
            claims += [(number, claim) for claim in _cell(label, cells.get(column, ""), board, about)]
    for number, label, cells in down:
        named = _only_board(label)
        for column, title in enumerate(header[1:], 1):
            if named is not None:
                about = f"{label} {heading} {cells.get(column, '')}"
                claims += [(number, claim) for claim in _cell(title, cells.get(column, ""), named, about)]
    kinds = {claim.figure.told for _, claim in claims}
    if len(kinds) > 1 or FIGURES[0].told in kinds:
        yield from claims


def _cell(label: str, cell: str, board: str, about: str) -> Iterator[_Claim]:
    for figure in FIGURES:
        whole = f"{label}/SM" if re.search(_PER_SM, cell) else label
        value = re.match(rf"(?:up to |~|≈)?{figure.value}", cell, re.IGNORECASE)
        if value is not None and re.fullmatch(figure.spec, whole, re.IGNORECASE):
            yield _Claim(figure, _value(figure, value), frozenset({board}), about, 0, f"{label} | {cell}")
