"""What went wrong in a trace, how often, and what fixed it.

Errors are found line by line, by what the tools of kernel work print when they fail. What an agent says is
matched more strictly than what a tool printed, as agents talk about errors that did not happen. An error is
`resolved` only where a later run of the same program, that came as far, did not show it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from harness.teaching.traces.events import Event
from harness.teaching.traces.files import programs
from harness.text import clip

Category = Literal[
    "crash",
    "cuda",
    "wrong result",
    "link",
    "compile",
    "build.toml",
    "build",
    "python",
    "timeout",
    "exit",
    "other",
]
SEVERITY: Final[tuple[Category, ...]] = get_args(Category)
STAGE: Final[dict[Category, int]] = {
    **dict.fromkeys(("build.toml", "build", "other"), 0),
    "compile": 1,
    "link": 2,
    **dict.fromkeys(("python", "exit", "timeout"), 3),
    **dict.fromkeys(("crash", "cuda"), 4),
    "wrong result": 5,
}
"""How far a program came that fails like this."""

_LINE_LIMIT: Final = 1_000
_HEADLINE_LIMIT: Final = 400
_TRACEBACK_LINES: Final = 400
_TRACEBACK: Final = "Traceback (most recent call last)"
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
# `E   ` is pytest's, `> ` and `| ` are quotations, `[3/7] ` is ninja's.
_PREFIX = re.compile(r"^\s*(?:E\s{2,}|[>|]\s+|\[\d+/\d+\]\s+|(?:stderr|stdout): )*")
_EXCEPTION = re.compile(r"^(?:[a-zA-Z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
_CUE = re.compile(
    r"error|fatal|fail|exception|traceback|interrupt|undefined|mismatch|match|close|differ|illegal|misaligned"
    r"|launch|kernel image|out of memory|time|exit|code|non-zero|dumped|killed|segmentation|not found|no such"
    r"|denied|cannot|unknown|invalid|wrong|max|multiple|uninitialized|race|correct|passed|double free",
    re.IGNORECASE,
)
"""A pattern matches only lines that hold one of these: looking for them is much faster."""
_BUILD_FAILED: Final = re.compile(
    r"error compiling|error building|calledprocesserror|compilation failed|failed to build", re.IGNORECASE
)
"""Exceptions of torch and subprocess that only repeat that a compiler failed."""


@dataclass(frozen=True)
class Fault:
    """One error in one event."""

    category: Category
    headline: str
    """The line that names it, without its place in a source file."""
    line: int
    end: int
    consequence: bool = False
    """Such as `ninja: build stopped`: counts only where nothing in the event says why."""


class _Pattern(NamedTuple):
    category: Category
    regex: str
    """Its first group that matched is the headline; without groups, the whole line is."""
    loose: bool = False
    """Matches what people say too: only for what tools print."""
    consequence: bool = False


# The first that matches a line counts.
_PATTERNS: Final = (
    _Pattern("cuda", r"^=+ ((?:Invalid|Misaligned|Uninitialized|Race|Potential|Program hit).+)"),
    _Pattern(
        "compile",
        r"^[^\s:()\"'][^:()\"']{0,300}(?:\(\d+\)|:\d+(?::\d+)?)\s?:\s+"
        r"((?:fatal |catastrophic |internal )?error\b[^:]{0,20}:\s*.+)",
    ),
    _Pattern("link", r"^(?:nvlink|lld?|ld\.lld)\s*:?\s*(?:error|fatal)\s*:\s*(.+)"),
    _Pattern(
        "compile",
        r"^(?:\S*/)?(?:ptxas|nvcc|cicc|cudafe\+\+|cc1plus|g\+\+|gcc|clang(?:\+\+)?)\S{0,40}\s*:?\s*"
        r"(?:error|fatal(?: error)?)\s*:\s*(.+)",
    ),
    _Pattern(
        "link",
        r"(undefined reference to .+|multiple definition of .+|undefined symbol: .+"
        r"|\S+: cannot open shared object file.*)|(?:^|[/ ])ld(?:\.\w+)?: ((?:error|cannot find).+)",
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
        r"Tensor-likes are not (?:close|equal)|^(verdict: wrong_result.+)",
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
        r"((?:CUDA|cuda|cudart|cuBLAS|NCCL)[\w ]{0,20} [Ee]rror\b ?(?:\d+ ?)?[:(].+|CUDA out of memory.*)",
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
    _Pattern("timeout", r"(?i)\b(?:timed out|timeoutexpired|timeout (?:exceeded|after|of))\b", loose=True),
    _Pattern("build", r"^(verdict: (?:build_failed|load_failed|no_project).+)"),
    _Pattern("crash", r"^(verdict: (?:crashed|cheated|timed_out).+)"),
    _Pattern("python", r"^(?:FAILED|ERROR) \S+ - (.+)", loose=True, consequence=True),
    _Pattern("python", r"^((?:[a-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?:: .+)?)$"),
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
    found = list(_scan(event.text, strict=event.role == "assistant")) if _CUE.search(event.text) else []
    causes = [fault for fault in found if not fault.consequence]
    if any(fault.category in ("compile", "link", "build") for fault in causes):
        causes = [f for f in causes if f.category != "python" or not _BUILD_FAILED.search(f.headline)]
    if causes or found:
        return causes or found[-1:]
    if event.is_error:
        lines = event.text.split("\n")
        first = next(i for i, line in enumerate(lines) if line.strip())
        return [Fault("other", _clip(lines[first].strip()), first, first)]
    return []


def _scan(text: str, *, strict: bool) -> Iterator[Fault]:
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    index = 0
    while index < len(lines):
        line = lines[index][:_LINE_LIMIT]
        found = None
        if _TRACEBACK in line:
            found = _traceback(lines, index)
        elif _CUE.search(line):
            found = _match(line, index, strict)
        if found is not None:
            yield found
            index = found.end
        index += 1


def _match(line: str, index: int, strict: bool) -> Fault | None:
    bare = _PREFIX.sub("", line).strip()
    for pattern, regex in _COMPILED:
        if pattern.loose and strict:
            continue
        found = regex.search(bare)
        if found is not None:
            headline = next(filter(None, found.groups()), bare).strip()
            finer = _finer(headline) if pattern.category == "python" else None
            return Fault(finer or pattern.category, _clip(headline), index, index, pattern.consequence)
    return None


def _traceback(lines: list[str], start: int) -> Fault:
    """From `Traceback` to the line that names the exception, which is indented no deeper."""
    head = lines[start]
    column = head.index(_TRACEBACK)
    for index in range(start + 1, min(len(lines), start + _TRACEBACK_LINES)):
        line = lines[index]
        text = line[column:] if not line[:column].strip() or line[:column] == head[:column] else line.strip()
        if not text.strip() or text.startswith((" ", "\t")):
            continue
        headline = text.strip()
        if _TRACEBACK in line or not _EXCEPTION.match(headline[:_LINE_LIMIT]):
            break
        if headline.endswith(":"):  # the message begins on the next line
            headline += " " + next((x.strip() for x in lines[index + 1 : index + 3] if x.strip()), "")
        return Fault(_finer(headline) or "python", _clip(headline), start, index)
    shown = next((x.strip() for x in reversed(lines[start : start + 3]) if x.strip()), _TRACEBACK)
    return Fault("python", _clip(f"traceback that is cut off: {shown}"), start, start)


def _finer(headline: str) -> Category | None:
    """What an exception is about."""
    low = headline.lower()
    kind, _, message = low.partition(":")
    if "cuda" in low and ("error" in message or "out of memory" in low or "kernel image" in low):
        return "cuda"
    if "not close" in low or "not equal" in low or ("assert" in low and "mismatch" in low):
        return "wrong result"
    if "undefined symbol" in low or "cannot open shared object" in low:
        return "link"
    return "timeout" if "timeout" in kind else None


def _clip(text: str) -> str:
    return text if len(text) <= _HEADLINE_LIMIT else text[: _HEADLINE_LIMIT - 1] + "…"


_PATH = re.compile(r"(?:[A-Za-z]:)?[~.\w+-]*(?:[/\\][\w.+@-]+)+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def signature(fault: Fault) -> tuple[Category, str]:
    """Equal for two occurrences of one error: without folders, addresses and numbers."""
    text = _PATH.sub(lambda m: re.split(r"[/\\]", m[0])[-1], fault.headline)
    text = _NUMBER.sub("#", _ADDRESS.sub("@", text))
    return fault.category, " ".join(text.split())


# --- lessons -----------------------------------------------------------------------------------

_CONTEXT_BYTES: Final = 1_200
_FIX_BYTES: Final = 2_400
_COMMAND_BYTES: Final = 200
_LINES_BEFORE, _LINES_AFTER = 2, 8
_NO_ERROR_STAGE: Final = max(STAGE.values()) + 1

Signature = tuple[Category, str]


@dataclass(frozen=True)
class Lesson:
    """One error, and its fix where one was found."""

    category: Category
    error: str
    count: int
    first: str
    last: str
    resolved: bool
    fix: str | None
    """What was changed between the last occurrence and the run without it; None where it was not resolved."""
    context: str
    command: str | None


@dataclass
class _Group:
    """Equal errors: count, and the first and the last."""

    first: tuple[Event, Fault]
    last: tuple[Event, Fault]
    count: int = 0


@dataclass(frozen=True)
class _Run:
    """One run of a program: its result's index, its errors, and how far it came."""

    index: int
    shown: frozenset[Signature]
    stage: int


def lessons(events: Sequence[Event], diffs: Mapping[int, str]) -> list[Lesson]:
    """The errors: unresolved ones first, then by count, then by severity. `diffs`: changes by event index."""
    groups: dict[Signature, _Group] = {}
    runs: dict[str, list[_Run]] = defaultdict(list)
    calls = _calls(events)
    for event in events:
        found = {signature(fault): fault for fault in faults_of(event)}
        for key, fault in found.items():
            group = groups.setdefault(key, _Group((event, fault), (event, fault)))
            group.last = (event, fault)
            group.count += 1
        if event.index in calls:
            stage = min((STAGE[category] for category, _ in found), default=_NO_ERROR_STAGE)
            for program in programs(calls[event.index]):
                runs[program].append(_Run(event.index, frozenset(found), stage))
    order = sorted(groups.items(), key=lambda item: item[1].last[0].index)
    made = [_lesson(key, group, calls, runs, diffs) for key, group in order]
    return sorted(made, key=lambda x: (x.resolved, -x.count, SEVERITY.index(x.category)))


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
    group: _Group,
    calls: Mapping[int, Event],
    runs: Mapping[str, Sequence[_Run]],
    diffs: Mapping[int, str],
) -> Lesson:
    event, fault = group.last
    call = calls.get(event.index)
    clean = None if call is None else _clean_run(key, event.index, call, runs)
    fix = None
    if call is not None and clean is not None:
        edits = [text.rstrip("\n") for index, text in diffs.items() if event.index < index <= clean]
        again = calls[clean].text
        if not edits and again != call.text:
            edits = [f"the command became: {again}"]
        fix = clip("\n".join(edits), _FIX_BYTES) or "nothing that the trace shows"
    first, first_fault = group.first
    return Lesson(
        category=key[0],
        error=fault.headline,
        count=group.count,
        first=first.place_of(first_fault.line),
        last=event.place_of(fault.line),
        resolved=clean is not None,
        fix=fix,
        context=_context(event, fault),
        command=None if call is None else clip(" ".join(call.text.split()), _COMMAND_BYTES),
    )


def _clean_run(key: Signature, last: int, call: Event, runs: Mapping[str, Sequence[_Run]]) -> int | None:
    """The first later run of one of the call's programs that came as far without the error."""
    found = []
    for program in programs(call):
        history = runs[program]
        later = history[bisect_right(history, last, key=lambda run: run.index) :]
        clean = (run.index for run in later if key not in run.shown and run.stage >= STAGE[key[0]])
        found += [index for index in [next(clean, None)] if index is not None]
    return min(found, default=None)


def _context(event: Event, fault: Fault) -> str:
    lines = event.text.splitlines()
    begin, end = max(0, fault.line - _LINES_BEFORE), min(len(lines), fault.end + 1 + _LINES_AFTER)
    return clip("\n".join(line.rstrip() for line in lines[begin:end]).strip("\n"), _CONTEXT_BYTES)
