"""What went wrong in a trace, how often, and what fixed it.

Errors are found line by line, by what the tools of kernel work print when they fail. What an agent says is
matched more strictly than what a tool printed, as agents talk about errors that did not happen. An error is
`resolved` only where a later run of the same program, that came as far, did not show it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from harness.teaching.traces.events import Event
from harness.teaching.traces.files import programs
from harness.text import clean, clip, shorten

STAGE: Final = {
    **dict.fromkeys(("build.toml", "build", "other"), 0),
    "compile": 1,
    "link": 2,
    **dict.fromkeys(("python", "exit", "timeout"), 3),
    **dict.fromkeys(("crash", "cuda"), 4),
    "wrong result": 5,
}
"""By category, how far a program came that fails like this."""
_NO_ERROR_STAGE: Final = max(STAGE.values()) + 1

_LINE_LIMIT: Final = 1_000
_HEADLINE_LIMIT: Final = 400
# `E   ` is pytest's, `> ` and `| ` are quotations, `[3/7] ` is ninja's.
_PREFIX = re.compile(r"^\s*(?:E\s{2,}|[>|]\s+|\[\d+/\d+\]\s+|(?:stderr|stdout): )*")
_CUE = re.compile(
    r"error|fatal|fail|exception|traceback|interrupt|undefined|mismatch|match|close|differ|illegal|misaligned"
    r"|launch|kernel image|out of memory|time|exit|code|non-zero|dumped|killed|segmentation|not found|no such"
    r"|denied|cannot|unknown|invalid|wrong|max|multiple|uninitialized|race|correct|passed|double free",
    re.IGNORECASE,
)
"""A pattern matches only lines that hold one of these: looking for them is much faster."""


@dataclass(frozen=True)
class Fault:
    """One error in one event."""

    category: str
    headline: str
    """The line that names it, without its place in a source file."""
    line: int
    """Of the event's text, from 0."""
    consequence: bool = False
    """Such as `ninja: build stopped`: counts only where nothing in the event says why."""


class _Pattern(NamedTuple):
    category: str
    regex: str
    """Its first group that matched is the headline; without groups, the whole line is."""
    loose: bool = False
    """Matches what people say too: only for what tools print."""
    consequence: bool = False


# The first that matches a line counts.
_PATTERNS: Final = (
    _Pattern(
        "compile",
        r"^[^\s:()\"'][^:()\"']{0,300}(?:\(\d+\)|:\d+(?::\d+)?)\s?:\s+"
        r"((?:fatal |catastrophic |internal )?error\b[^:]{0,20}:\s*.+)"
        r"|^(?:\S*/)?(?:ptxas|nvcc|cicc|cudafe\+\+|cc1plus|g\+\+|gcc|clang(?:\+\+)?)\S{0,40}\s*:?\s*"
        r"(?:error|fatal(?: error)?)\s*:\s*(.+)",
    ),
    _Pattern(
        "link",
        r"(undefined reference to .+|multiple definition of .+|undefined symbol: .+"
        r"|\S+: cannot open shared object file.*)|(?:^|[/ ])ld(?:\.\w+)?: ((?:error|cannot find).+)"
        r"|^(?:nvlink|lld?|ld\.lld)\s*:?\s*(?:error|fatal)\s*:\s*(.+)",
    ),
    _Pattern("build", r"^(CMake Error(?: at [^:]+:\d+)?.*)|^ninja: error: (.+)"),
    _Pattern(
        "build",
        r"^(ninja: build stopped.*|FAILED: .+|collect2: error: .+|make(?:\[\d+\])?: \*\*\* .+)",
        consequence=True,
    ),
    _Pattern(
        "build.toml",
        r"(Cannot parse (?:build configuration|TOML).+|Unknown (?:field|variant) .+Expected.+"
        r"|Invalid kernel name.+)",
    ),
    _Pattern(
        "wrong result",
        r"Tensor-likes are not (?:close|equal)|Not equal to tolerance|^AssertionError: .*mismatch",
    ),
    _Pattern(
        "wrong result",
        r"(?i)^\W*((?:mismatch|(?:wrong|incorrect) (?:results?|values?|outputs?))\b.*)"
        r"|\b(?:allclose|correct(?:ness)?|match(?:es)?|passed)\b['\"]?\s*(?:\([^)]{0,200}\))?"
        r"\s*[:=]+>?\s*(?:False|FAIL(?:ED)?|NO)\b"
        r"|\bmax[\w ]{0,20}(?:diff|err)\w*\b\W{0,4}(?:nan|inf)\b",
        loose=True,
    ),
    _Pattern(
        "cuda",
        r"((?:CUDA|cuda|cudart|cuBLAS|NCCL)[\w ]{0,20} [Ee]rror\b ?(?:\d+ ?)?[:(].+|CUDA out of memory.*)"
        r"|^=+ ((?:Invalid|Misaligned|Uninitialized|Race|Potential|Program hit).+)",
    ),
    _Pattern(
        "cuda",
        r"((?:an )?illegal memory access.*|misaligned address.*|unspecified launch failure.*"
        r"|no kernel image is available.*|too many resources requested for launch.*)",
        loose=True,
    ),
    _Pattern(
        "crash",
        r"(Segmentation fault.*|Aborted \(core dumped\).*|Bus error.*|Fatal Python error.*"
        r"|double free or corruption.*|Illegal instruction.*)|^(?:.*: line \d+:\s+\d+ )?(Killed)\b",
        loose=True,
    ),
    _Pattern(
        "timeout",
        r"(?i)\b(?:timed out|timeoutexpired|timeouterror|timeout (?:exceeded|after|of))\b",
        loose=True,
    ),
    _Pattern("python", r"^(?:FAILED|ERROR) \S+ - (.+)|^(Traceback \(most .+)", loose=True, consequence=True),
    # Exceptions of torch and subprocess that only repeat that a compiler failed.
    _Pattern(
        "python",
        r"^([\w.]+: .*(?:[Ee]rror (?:compiling|building)|[Cc]ompilation failed|[Ff]ailed to build).*"
        r"|\S*CalledProcessError.*)",
        consequence=True,
    ),
    _Pattern(
        "python",
        r"^((?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?:: ?.*)?"
        r"|(?:[a-z_]\w*\.)+[A-Z]\w*: .+)$",
    ),
    _Pattern("other", r": (?:command not found|Permission denied|No such file or directory)", loose=True),
    _Pattern(
        "exit",
        r"(?i)\b(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)[:= ]+-?[1-9]\d{0,4}\b"
        r"|returned non-zero exit status",
        loose=True,
        consequence=True,
    ),
    _Pattern(
        "other",
        r"^\[?(?:\S{1,40}: )?(?:error|ERROR|Error|fatal|FATAL)(?:\[\w+\])?\]?\s*:\s*(.+)",
        loose=True,
    ),
)
_COMPILED: Final = tuple((pattern, re.compile(pattern.regex)) for pattern in _PATTERNS)


def faults_of(event: Event) -> list[Fault]:
    """The errors that an event shows, in order; consequences only where nothing else is found."""
    if event.kind in ("tool_call", "thinking"):  # what was asked for or thought of has not happened
        return []
    lines = _lines(event) if event.is_error or _CUE.search(event.text) else []
    matched = (_match(line, number, event.role == "assistant") for number, line in enumerate(lines))
    found = [fault for fault in matched if fault is not None]
    if not found and event.is_error:
        first = next((number for number, line in enumerate(lines) if line.strip()), 0)
        found = [Fault("other", shorten(lines[first].strip(), _HEADLINE_LIMIT), first)]
    return [fault for fault in found if not fault.consequence] or found[-1:]


def _lines(event: Event) -> list[str]:
    return clean(event.text).split("\n")


def _match(line: str, number: int, strict: bool) -> Fault | None:
    bare = _PREFIX.sub("", line[:_LINE_LIMIT]).strip() if _CUE.search(line) else ""
    for pattern, regex in _COMPILED if bare else ():
        if pattern.loose and strict:
            continue
        found = regex.search(bare)
        if found is not None:
            headline = next(filter(None, found.groups()), bare).strip()
            shown = shorten(headline, _HEADLINE_LIMIT)
            return Fault(pattern.category, shown, number, pattern.consequence)
    return None


_PATH = re.compile(r"(?:[A-Za-z]:)?[~.\w+-]*(?:[/\\][\w.+@-]+)+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
Signature = tuple[str, str]


def signature(fault: Fault) -> Signature:
    """Equal for two occurrences of one error: without folders, addresses and numbers."""
    text = _PATH.sub(lambda m: re.split(r"[/\\]", m[0])[-1], fault.headline)
    text = _NUMBER.sub("#", _ADDRESS.sub("@", text))
    return fault.category, " ".join(text.split())


_CONTEXT_BYTES: Final = 1_200
_FIX_BYTES: Final = 2_400
_COMMAND_BYTES: Final = 200
_LINES_BEFORE, _LINES_AFTER = 2, 8


@dataclass(frozen=True)
class Lesson:
    """One error, and its fix where one was found."""

    category: str
    error: str
    count: int
    first: str
    last: str
    resolved: bool
    fix: str | None
    """What was changed between the last occurrence and the run without it; None where it was not resolved."""
    context: str
    command: str | None


@dataclass(frozen=True)
class _Run:
    """One run of a program: its result's index, its errors, and how far it came."""

    index: int
    shown: frozenset[Signature]
    stage: int


def lessons(events: Sequence[Event], diffs: Mapping[int, str]) -> list[Lesson]:
    """The errors: unresolved ones first, then by count, then by how far the program came.

    `diffs`: changes by event index.
    """
    groups: dict[Signature, list[tuple[Event, Fault]]] = defaultdict(list)
    runs: dict[str, list[_Run]] = defaultdict(list)
    calls = _calls(events)
    for event in events:
        found = {signature(fault): fault for fault in faults_of(event)}
        for key, fault in found.items():
            groups[key].append((event, fault))
        if event.index in calls:
            stage = min((STAGE[category] for category, _ in found), default=_NO_ERROR_STAGE)
            for program in programs(calls[event.index]):
                runs[program].append(_Run(event.index, frozenset(found), stage))
    made = [_lesson(key, seen, calls, runs, diffs) for key, seen in groups.items()]
    return sorted(made, key=lambda one: (one.resolved, -one.count, -STAGE[one.category]))


def _calls(events: Sequence[Event]) -> dict[int, Event]:
    """The call of each result: by its id, or the call before it where the trace has no ids."""
    by_id: dict[str, Event] = {}
    found: dict[int, Event] = {}
    recent: Event | None = None
    for event in events:
        if event.kind == "tool_call":
            recent = event
            if event.call is not None:
                by_id[event.call] = event
        elif event.kind == "tool_result":
            call = by_id.get(event.call) if event.call is not None else recent
            if call is not None:
                found[event.index] = call
    return found


def _lesson(
    key: Signature,
    seen: Sequence[tuple[Event, Fault]],
    calls: Mapping[int, Event],
    runs: Mapping[str, Sequence[_Run]],
    diffs: Mapping[int, str],
) -> Lesson:
    (first, first_fault), (last, fault) = seen[0], seen[-1]
    call = calls.get(last.index)
    clean_run = None if call is None else _clean_run(key, last.index, call, runs)
    fix = None
    if call is not None and clean_run is not None:
        edits = [text.rstrip("\n") for index, text in diffs.items() if last.index < index <= clean_run]
        again = calls[clean_run].text
        if not edits and again != call.text:
            edits = [f"the command became: {again}"]
        fix = clip("\n".join(edits), _FIX_BYTES) or "nothing that the trace shows"
    around = _lines(last)[max(0, fault.line - _LINES_BEFORE) : fault.line + 1 + _LINES_AFTER]
    return Lesson(
        category=key[0],
        error=fault.headline,
        count=len(seen),
        first=first.place_of(first_fault.line),
        last=last.place_of(fault.line),
        resolved=clean_run is not None,
        fix=fix,
        context=clip("\n".join(map(str.rstrip, around)).strip("\n"), _CONTEXT_BYTES),
        command=None if call is None else clip(" ".join(call.text.split()), _COMMAND_BYTES),
    )


def _clean_run(key: Signature, last: int, call: Event, runs: Mapping[str, Sequence[_Run]]) -> int | None:
    """The first later run of one of the call's programs that came as far without the error."""
    later = (run for program in programs(call) for run in runs[program] if run.index > last)
    return min((r.index for r in later if key not in r.shown and r.stage >= STAGE[key[0]]), default=None)
