"""The feedback on an answer that a student reads before its next one: a pure function of the grade.

With the briefing `contract` it quotes what tools say of a failed build, without advice on the format.

It never contains expected values, seeds, hidden shapes or paths of this machine. Of hidden cases it gives
only how many there are and how many fail, of cases with extreme values only the kind, and of refused timings
no figure. What tools and student code print is sanitized: every quoted line begins with "> ", so it cannot
pass for the harness's text, absolute paths are removed, and a quotation keeps to its token limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    BINDING_WARNING,
    PARSER_SAYS,
    Briefing,
    CheckResult,
    DeviceKernel,
    Diagnostic,
    Finding,
    Grade,
    Ratio,
    Target,
    Task,
    TimingResult,
    WorkloadCheck,
)
from harness.records.timing import NOISY
from harness.text import clean, estimate_tokens, first_line, shorten

LINE_CHARS: Final = 400
_MARK: Final = "> "

# At least two parts, since `/x` may be a division; after a word, dot or colon it is no absolute path.
_DIRECTORIES = re.compile(r"(?<![\w.:/~*-])/(?:[^\s/:;'\"`,()<>|]+/)+")
_FRAME = re.compile(r"^\s*File \"(?P<path>[^\"\n]{1,1000})\", line (?P<line>\d{1,9})(?P<where>.*)$")
_NATIVE_FRAME = re.compile(r"^(?:frame )?#\d+:? ")
_OUR_COPY: Final = "project"
QUOTED_TOKENS: Final = 2_000
"""Estimated tokens of quoted tool output and exceptions in one message."""

_VERDICTS: Final[dict[Verdict, str]] = {
    Verdict.NO_PROJECT: "Your answer holds no project.",
    Verdict.BUILD_FAILED: "The project does not build.",
    Verdict.LOAD_FAILED: "The project builds, but its package cannot be used.",
    Verdict.WRONG_RESULT: "The project builds and runs, but its results are wrong.",
    Verdict.CRASHED: "The project builds, but it crashes.",
    Verdict.TIMED_OUT: "The project builds, but it does not answer in time.",
    Verdict.CHEATED: "The project is refused: its own account of its speed cannot be true.",
    Verdict.CORRECT: "The results are correct in every case.",
}
_TELL_NO_MORE: Final = {
    # Figures would show how far a false claim may go.
    Cause.LATE_OUTPUT: "Outputs must be written when the call has ended and the device is idle.",
    Cause.INTERFERENCE: "What the process leaves behind, such as timers, slows down what runs after it.",
    Cause.CLOCK: "What the process says of its own times contradicts the judge's clock.",
    Cause.PHYSICS: "It is faster than any correct answer can be on this device.",
    Cause.DEVICE_FAULT: "The device was well before it ran and not after, twice.",
}

_CASES_TOKENS: Final = 1_000
_PLAIN: Final = ("task", "integers")
"""Kinds of values that have no special positions: the task's own, and -1, 0 and 1."""


def feedback(grade: Grade, task: Task, target: Target, turn: int, *, turns: int, briefing: Briefing) -> str:
    """The message after answer `turn` (from 0) of at most `turns`. Raises ValueError after the last one."""
    if turn + 1 >= turns:
        raise ValueError(f"after answer {turn + 1} of {turns} nothing is asked")
    if briefing == "contract":
        grade = without_advice(grade)
    parts = [f"# Result of answer {turn + 1} of at most {turns}", _verdict(grade, target)]
    parts += _details(grade, task)
    parts += ["# Next", _next(grade, turn + 1, turns)]
    return "\n\n".join(part for part in parts if part) + "\n"


def without_advice(grade: Grade) -> Grade:
    """The grade without liftbench's advice on the format: of a failed build, what tools said."""
    build = grade.build
    if build is None:
        return grade
    advice = {one.advice for one in build.diagnostics}
    message = "\n".join(line for line in grade.finding.message.split("\n") if line not in advice)
    diagnostics = tuple(one.model_copy(update={"advice": None}) for one in build.diagnostics)
    _, parsed, said = message.partition(PARSER_SAYS)
    if parsed:  # the diagnostic is the first line, which is advice
        diagnostics, message = (), said
    warnings = tuple(one for one in build.warnings if not one.startswith(BINDING_WARNING))
    build = build.model_copy(update={"diagnostics": diagnostics, "warnings": warnings})
    finding = grade.finding.model_copy(update={"message": message})
    return grade.model_copy(update={"build": build, "finding": finding})


def _verdict(grade: Grade, target: Target) -> str:
    if grade.finding.cause is Cause.BUILD_TIMEOUT:
        return "The project does not build in the time that it has."
    if grade.verdict is not Verdict.NOT_MEASURED:
        return _VERDICTS[grade.verdict]
    if not grade.compiled:
        return "This machine could not build the project, for lack of a tool: that is no fault of yours."
    if target == "cuda":
        return (
            "The project builds for sm_90. There is no GPU here that it could run on: only the build was "
            "checked. Whether it is correct, and how fast it is, was not measured."
        )
    return "The project builds. Whether it is correct, and how fast it is, was not measured."


def _next(grade: Grade, turn: int, turns: int) -> str:
    last = " It is your last one." if turn + 1 == turns else ""
    follows = f"Answer {turn + 1} of at most {turns} follows.{last}"
    if grade.project is None:
        return f"{follows} Give the whole project, every file."
    return (
        f"{follows} Give the whole project again, every file; or nothing but the line KEEP, and this project "
        "stands as it is. The last project counts, not the best."
    )


def _details(grade: Grade, task: Task) -> list[str]:
    cause, message = grade.finding.cause, grade.finding.message
    if cause in _TELL_NO_MORE:
        return [_TELL_NO_MORE[cause]]
    if grade.verdict is Verdict.NO_PROJECT:
        return [quotation([message], QUOTED_TOKENS)]
    if grade.not_built:
        return _build(grade, task)
    told = [_check_lines(grade.check)] if grade.check is not None else []
    told += _binding(grade, task)
    if grade.verdict is Verdict.CORRECT:
        told += [*_speed(grade.timing), *_kernels(grade)]
    elif grade.verdict is Verdict.NOT_MEASURED:
        told += [quotation([own_trace(message, task.module)], QUOTED_TOKENS), *_kernels(grade)]
    elif grade.verdict is not Verdict.WRONG_RESULT or grade.stage is not Stage.CHECK:
        told.append(_failure(grade, task))
    # Without the origin of copied source: a student that knows it would only rename.
    flags = grade.flags_of_work
    return [*told, f"Noted beside the result: {', '.join(flags)}."] if flags else told


def _failure(grade: Grade, task: Task) -> str:
    """A package that cannot be loaded, an operator that raised, or a process that ended."""
    diagnostics = grade.build.diagnostics if grade.build is not None else ()
    parts = [_diagnostic(one, task) for one in diagnostics]
    said = own_trace(grade.finding.message, task.module)
    if grade.check is not None and grade.finding == grade.check.finding:
        failed = [case for case in grade.check.workloads if case.finding == grade.finding]
        if all(case.hidden for case in failed):
            return "It happened in a hidden case, so no more is told of it."
        if not any(map(_open, failed)):
            said = without_numbers(said)  # an exception may quote the inputs of its case
    return quotation([said, *parts], QUOTED_TOKENS)


def _check_lines(check: CheckResult) -> str:
    """How many cases pass, and which public ones fail."""
    public = [case for case in check.workloads if not case.hidden]
    hidden = [case for case in check.workloads if case.hidden]
    failing = [_failing(case, case.finding) for case in public if case.finding is not None]
    lines = [f"Cases with shapes that you know: {len(public) - len(failing)} of {len(public)} pass."]
    if hidden:
        passing = sum(case.finding is None for case in hidden)
        lines.append(f"Hidden cases (shapes drawn for this check): {passing} of {len(hidden)} pass.")
    if check.not_run:
        lines.append(f"Cases not run after that: {len(check.not_run)}.")
    text = " ".join(lines)
    return text + ("\n\n" + quotation(failing, _CASES_TOKENS) if failing else "")


def _open(case: WorkloadCheck) -> bool:
    return not case.hidden and case.values in _PLAIN


def _failing(case: WorkloadCheck, finding: Finding) -> str:
    """One failed public case, in one line."""
    name = f"{case.workload} {case.dtype}"
    if case.values != "task":
        name += f", values {case.values}"
    if case.layout != "contiguous":
        name += f", {case.layout}"
    if _open(case) and finding.verdict is Verdict.WRONG_RESULT:
        # The judge's own message: counts, an index and a multiple of the tolerance, but no value.
        said = finding.message.removeprefix(f"{name}: ")
        return f"{name}: {one_line(said)}"
    line = f"{name}: {str(finding.cause).replace('_', ' ')}"
    worst, allowed = case.worst_error, case.allowed_error
    if worst is None or not allowed or worst <= allowed:
        return line
    return f"{line}; the largest error is {worst / allowed:.3g} times what is allowed"


def _build(grade: Grade, task: Task) -> list[str]:
    """The first error of every file; the first one is followed by the tool's further output."""
    build = grade.build
    diagnostics = build.diagnostics if build is not None else ()
    parts = [_diagnostic(one, task) for one in diagnostics]
    message = without_places(grade.finding.message, task.module)
    error, _, below = message.strip().partition("\n")
    if not parts:
        parts = [message]
    elif below:
        parts.insert(1, below if without_places(diagnostics[0].message, task.module) in error else message)
    return [quotation(parts, QUOTED_TOKENS)]


def _diagnostic(one: Diagnostic, task: Task) -> str:
    place = ":".join(str(part) for part in (one.file, one.line, one.column) if part is not None)
    text = (f"{place}: " if place else "") + without_places(one_line(one.message), task.module)
    if one.source is not None:
        text += f"\n    {one_line(one.source)}"
    if one.advice is not None:
        text += f"\n    help: {without_places(one_line(one.advice), task.module)}"
    return text


def _binding(grade: Grade, task: Task) -> list[str]:
    """Binding code that compiles, but passes the operator other numbers."""
    found = grade.build.binding_warnings if grade.build is not None else ()
    if not found:
        return []
    lines = [without_places(one_line(one), task.module) for one in found]
    return [
        "The binding compiles, but gives the operator other numbers:\n\n" + quotation(lines, QUOTED_TOKENS)
    ]


def _speed(timing: TimingResult | None) -> list[str]:
    if timing is None:
        return ["How fast it is was not measured."]
    rows = ["| workload | yours | reference | speedup over the fastest (95% interval) |", "|---|---|---|---|"]
    for one in timing.workloads:
        references = ", ".join(f"{other.score_us:.4g} us ({other.name})" for other in one.references)
        ours = f"{one.workload} {one.dtype} | {one.student.score_us:.4g} us"
        rows.append(f"| {ours} | {references} | {_ratio(one.speedup)} |")
    lines = ["\n".join(rows), f"Speedup over all timed workloads: {_ratio(timing.speedup)}."]
    if NOISY in timing.flags:
        lines.append("The machine was not quiet while it was timed: take the times with care.")
    return lines


def _ratio(ratio: Ratio) -> str:
    known = ratio.low is not None and ratio.high is not None
    interval = f"{ratio.low:.2f} to {ratio.high:.2f}" if known else "no interval"
    apart = "" if ratio.distinguishable else ", not distinguishable from the reference"
    return f"{ratio.value:.2f}x ({interval}){apart}"


def _kernels(grade: Grade) -> list[str]:
    """Resources of the compiled CUDA kernels."""
    compiled = grade.build.kernels or () if grade.build is not None else ()
    lines = quotation(map(_compiled, compiled), QUOTED_TOKENS // 2)
    return [f"Kernels as they were compiled:\n\n{lines}"] if compiled else []


def _compiled(kernel: DeviceKernel) -> str:
    facts = [f"{kernel.registers} registers", f"{kernel.shared_bytes} bytes of static shared memory"]
    if kernel.stack_bytes:
        facts.append(f"{kernel.stack_bytes} bytes of local memory")
    if kernel.spill_store_bytes or kernel.spill_load_bytes:
        facts.append(
            f"spills: {kernel.spill_store_bytes or 0} bytes stored, {kernel.spill_load_bytes or 0} loaded"
        )
    return f"{one_line(kernel.name)} ({kernel.architecture}): {', '.join(facts)}"


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
        kept.append(line if code else re.sub(r"\d+", "#", line))
    return "\n".join(kept)


def one_line(text: str) -> str:
    """The first line of untrusted text, cleaned and shortened, for use within a line of feedback."""
    return first_line(text, LINE_CHARS)


def quotation(parts: Iterable[str], tokens: int) -> str:
    """The parts line by line, each line marked; lines beyond `tokens` are counted and left out."""
    lines = [line for part in parts for line in _marked(part)]
    kept: list[str] = []
    for line in lines:
        tokens -= estimate_tokens(f"{line}\n")
        if tokens < 0:
            kept.append(f"{_MARK}... ({len(lines) - len(kept)} more lines left out)")
            break
        kept.append(line)
    return "\n".join(kept)


def _marked(text: str) -> Iterator[str]:
    for line in text.splitlines():
        # Cleaning may leave characters that some readers treat as a line break.
        for piece in clean(line).splitlines():
            if piece.strip():
                yield f"{_MARK}{shorten(piece.rstrip(), LINE_CHARS)}"
