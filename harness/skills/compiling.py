"""Compiles the code that a skill shows, pieces and whole projects, in the sandbox's build role.

A piece of code may rely on names, headers and flags that its author does not show. It is wrong if every
way to compile it fails because of what the piece itself says. An unknown name is an error in a whole file or
project only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple, get_args

from harness.builder.schema import BuildToml
from harness.builder.units import HEADER_SUFFIXES
from harness.outcome import Cause
from harness.records import BuildResult, Diagnostic, Project, Record, Target
from harness.skills.blocks import CodeBlock, ShownProject, is_elided
from harness.skills.claims import unbuildable
from harness.skills.fragments import Attempt, attempts, is_compiled
from harness.skills.parsing import whole_build_toml
from harness.skills.spec import Severity, SkillFinding, error, warning

Build = Callable[[Project, Target], BuildResult]

_OURS: Final = frozenset({Cause.NO_TOOLCHAIN})
"""Causes that are this machine's fault."""
_CERTAIN: Final = frozenset({Cause.COMPILE_ERROR, Cause.LINK_ERROR})
"""Other causes are limits of liftbench, or a layout that the skill does not show completely."""
_ELSEWHERE: Final = frozenset({"missing_header", "wrong_arch"})
_CONTEXT = re.compile(
    r"is undefined|not (?:been )?declared|undeclared|is not a member|has no member|does not name a type"
    r"|No such file|cannot open source file|not a (?:template|type|class|namespace)"
    r"|must be a class or namespace"
    r"|unknown type|incomplete type|already (?:been )?(?:declared|defined)|redeclar|redefin|conflicting"
    r"|previous|no instance of|no matching|no operator|target specific option|<error-type>",
    re.IGNORECASE,
)
"""Errors that code which is not shown may resolve."""
_SURE = re.compile(
    r"too (?:few|many) (?:arguments|initializer)|a value of type .* cannot be (?:used|assigned)|zero-sized"
    r"|argument of type .* is incompatible|invalid conversion from|cannot convert|must be a modifiable lvalue"
    r"|lvalue required|assignment of read-only|static assertion failed|return value type",
    re.IGNORECASE,
)
"""Errors in types and counts that the compiler knows."""
_LIBRARY_NAMES = re.compile(
    r"\b(?:index|rindex|y[01n]|j[01n]|gamma|div|time|clock|select|read|write|link|access|pipe|signal|remove|rename"
    r"|round|exp|log|abs)\b(?!\s*\()"
)
"""An undeclared variable may be mistaken for a library function of that name."""
_MACRO = re.compile(r"['\"‘]_*[A-Z][A-Z0-9_]*['\"’]")
_NEAR: Final = 3
"""Lines around the quoted one that may belong to its statement."""


# --- pieces --------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """The result of compiling a piece: one of the two, or neither if it compiles."""

    finding: SkillFinding | None = None
    unavailable: str | None = None
    """What this machine lacks to compile it."""


class _Failure(NamedTuple):
    """A failed attempt. The one with the furthest line is reported: unsuitable ones fail at the start."""

    line: int
    helped: bool
    """Whether the usual headers were added; without them mostly a header is missing."""
    severity: Severity
    message: str


def compile_block(
    block: CodeBlock, companions: Mapping[str, str], build: Build, *, kernel_builder: bool = True
) -> Tried:
    """Try all ways to compile `block` until one succeeds. Raises SandboxError and HarnessBug.

    Code that is known not to build is not tried: torch/extension.h alone takes minutes.
    """
    known = next(iter(unbuildable(block.file, block.text, kernel_builder=kernel_builder)), None)
    if known is not None:
        return Tried(finding=known.model_copy(update={"line": block.line + (known.line or 1)}))
    failures: list[_Failure] = []
    for attempt in attempts(block, companions):
        result = build(attempt.project, attempt.target)
        # After a link error the object was compiled; a piece need not define all that it calls.
        if result.finding is None or result.finding.cause is Cause.LINK_ERROR:
            return Tried()
        if result.finding.cause in _OURS:
            return Tried(unavailable=result.finding.message)
        failures.append(_failure(block, attempt, result))
    worst = max(failures, key=lambda failure: (failure.line, failure.helped))
    what = "does not compile for sm_90" if attempt.target == "cuda" else "does not compile as C++"
    told = f"this code {what}: {worst.message}"
    if worst.severity == "note":
        told = f"not judged, as it needs what is not shown: {worst.message}"
    elif worst.severity == "warning":
        told = f"{told} (mark a piece that is not whole with the word `fragment`)"
    return Tried(
        finding=SkillFinding(file=block.file, line=worst.line, severity=worst.severity, message=told)
    )


def _failure(block: CodeBlock, attempt: Attempt, result: BuildResult) -> _Failure:
    """The first error, at its line of the skill."""
    assert result.finding is not None
    helped = attempt.before > 0
    own = [d for d in result.diagnostics if d.file == attempt.path and d.line is not None]
    first = next(iter(own or result.diagnostics), None)
    if first is None:
        return _Failure(block.text_line, helped, "warning", result.finding.message.partition("\n")[0])
    severity = compiler_severity(block, first)
    message = (
        first.message if first.advice is None or severity == "note" else f"{first.message}: {first.advice}"
    )
    if first.file != attempt.path or first.line is None:
        where = "" if first.file is None else f"{first.file}:{first.line or 1}: "
        return _Failure(block.text_line, helped, severity, where + message)
    inside = first.line - attempt.before
    last = block.text.rstrip("\n").count("\n") + 1
    return _Failure(block.text_line - 1 + min(max(inside, 1), last), helped, severity, message)


def compiler_severity(block: CodeBlock, told: Diagnostic) -> Severity:
    """The severity of a compiler error in code that was compiled without the rest of its project."""
    if told.kind in _ELSEWHERE:
        return "note"
    if told.kind in ("timeout", "out_of_memory", "other"):
        return "warning"
    # A header may rely on the file that includes it.
    header = block.path is None or PurePosixPath(block.path).suffix in HEADER_SUFFIXES
    whole = not header and not is_elided(block.text)
    if _CONTEXT.search(told.message):
        return "error" if whole and not _MACRO.search(told.message) else "note"
    source = told.source or ""
    sure = _SURE.search(told.message) is not None and not _LIBRARY_NAMES.search(source)
    if whole or (sure and not is_elided(_around(block.text, source))):
        return "error"
    return "note" if is_elided(block.text) else "warning"


def _around(text: str, source: str) -> str:
    """The lines near the one that a compiler quotes."""
    lines = text.split("\n")
    at = next((n for n, line in enumerate(lines) if line.strip() == source.strip()), 0)
    return "\n".join(lines[max(at - _NEAR, 0) : at + _NEAR + 1])


# --- projects ------------------------------------------------------------------------------------


class ShownProjectReport(Record):
    """A project that the skill shows, and its builds."""

    file: str
    line: int
    """Of its build.toml block; 1 for a file."""
    name: str | None
    """`general.name`; None when build.toml is not valid."""
    paths: tuple[str, ...]
    targets: tuple[Target, ...]
    """Those of its backends that liftbench builds."""
    builds: tuple[BuildResult, ...] = ()
    """One per target; empty without `--build`."""


class BuiltProject(NamedTuple):
    """The report, its findings, and the blocks that were built or failed."""

    report: ShownProjectReport
    findings: list[SkillFinding]
    built: frozenset[CodeBlock]
    failed: frozenset[CodeBlock]
    unavailable: tuple[str, ...]
    """What this machine lacks to build it."""


def build_shown(shown: ShownProject, build: Build | None, backend: str) -> BuiltProject:
    """Build the project for each of its targets, or only say for which without `build`.

    A project whose build.toml is not valid or whose sources are not all shown is not built. Advice on its
    build.toml is for `backend`.
    """
    block = shown.build_toml
    parsed, findings = whole_build_toml(block, backend)
    targets: tuple[Target, ...] = ()
    if parsed is not None:
        targets = tuple(t for t in get_args(Target) if t in parsed.general.backends)
    hidden = _hidden_sources(shown, parsed, targets)
    if hidden:
        message = f"this build.toml names what is not shown ({', '.join(hidden)}): the project is not built"
        findings.append(warning(block.file, block.line or 1, message))
    wanted = targets if build is not None and not hidden else ()
    results = tuple(build(shown.project, target) for target in wanted) if build is not None else ()
    sources = frozenset(b for b in shown.blocks if is_compiled(b))
    failed: set[CodeBlock] = set()
    for result in results:
        for where, finding in _faults(shown, result):
            findings.append(finding)
            failed |= sources if where is None else {where}
    findings += dict.fromkeys(one for result in results for one in _binding(shown, result))
    unavailable = tuple(r.finding.message for r in results if r.finding and r.finding.cause in _OURS)
    whole = bool(results) and not unavailable and not failed
    report = ShownProjectReport(
        file=block.file,
        line=block.line or 1,
        name=parsed.general.name if parsed is not None else None,
        paths=tuple(f.path for f in shown.project.files),
        targets=targets,
        builds=results,
    )
    return BuiltProject(
        report, findings, sources if whole else frozenset(), frozenset(failed) & sources, unavailable
    )


def _binding(shown: ShownProject, result: BuildResult) -> Iterator[SkillFinding]:
    """Warnings on the operator binding, at their lines of the skill."""
    for one in result.binding_warnings:
        for block in shown.blocks:
            line, _, message = one.removeprefix(f"{block.path}:").partition(": ")
            if block.path is not None and one.startswith(f"{block.path}:") and line.isdecimal():
                yield warning(block.file, block.line + int(line), message)


def _hidden_sources(shown: ShownProject, parsed: BuildToml | None, targets: Collection[str]) -> list[str]:
    """Sources that build.toml names and the skill does not show; glob patterns are left to the builder."""
    if parsed is None:
        return []
    named = [*(parsed.torch.src if parsed.torch is not None else ())]
    for kernel in parsed.kernel.values():
        named += kernel.src if kernel.backend in targets else ()
    paths = {file.path for file in shown.project.files}
    return [name for name in named if name not in paths and not set(name) & set("*?[")]


def _faults(shown: ShownProject, result: BuildResult) -> Iterator[tuple[CodeBlock | None, SkillFinding]]:
    """The first error of each file at its line of the skill, or else the failure at build.toml."""
    if result.finding is None or result.finding.cause in _OURS:
        return
    what = f"the project shown here does not build for {result.backend}"
    placed = False
    for one in result.diagnostics:
        block = next((b for b in reversed(shown.blocks) if b.path == one.file), None)
        if block is not None and one.line is not None:
            advice = "" if one.advice is None else f": {one.advice}"
            certain = (
                result.finding.cause in _CERTAIN and one.kind not in _ELSEWHERE and not is_elided(block.text)
            )
            report = error if certain else warning
            yield block, report(block.file, block.line + one.line, f"{what}: {one.message}{advice}")
            placed = True
    if not placed:
        toml = shown.build_toml
        report = error if result.finding.cause in _CERTAIN else warning
        yield None, report(toml.file, toml.line or 1, f"{what}: {result.finding.message}")
