"""Builds the whole projects that a skill shows, in a document or as a folder.

A project whose build.toml is not valid, or whose sources are not all shown, is not built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, get_args

from harness.builder.config.schema import BuildToml
from harness.outcome import Cause
from harness.records import BuildResult, Record, Target
from harness.skills.blocks import CodeBlock, ShownProject
from harness.skills.certainty import is_elided
from harness.skills.compiling import Build
from harness.skills.findings import SkillFinding, error, warning
from harness.skills.fragments import is_compiled
from harness.skills.parsing import whole_build_toml


class ShownProjectReport(Record):
    """A project that the skill shows, and what became of building it."""

    file: str
    line: int
    """Of its build.toml block; 1 for a file."""
    name: str | None
    """`general.name`; None when build.toml is not valid."""
    paths: tuple[str, ...]
    targets: tuple[Target, ...]
    """Of its backends those that we can build."""
    builds: tuple[BuildResult, ...] = ()
    """One for each target; empty when building was not asked for."""


class BuiltProject(NamedTuple):
    """The report, its findings, and the blocks by what became of them."""

    report: ShownProjectReport
    findings: list[SkillFinding]
    built: frozenset[CodeBlock]
    failed: frozenset[CodeBlock]
    unavailable: tuple[str, ...]
    """What this machine lacks to build it."""


def build_shown(shown: ShownProject, build: Build | None, backend: str) -> BuiltProject:
    """Build the project for each target that it has; without `build`, say what would be built.

    Advice on its build.toml is for `backend`.
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
    """What compiles but gives an operator other numbers, at its line of the skill."""
    for one in result.binding_warnings:
        for block in shown.blocks:
            line, _, message = one.removeprefix(f"{block.path}:").partition(": ")
            if block.path is not None and one.startswith(f"{block.path}:") and line.isdecimal():
                yield warning(block.file, block.line + int(line), message)


def _hidden_sources(shown: ShownProject, parsed: BuildToml | None, targets: Collection[str]) -> list[str]:
    """Sources that build.toml names and the skill does not show; patterns are the builder's to judge."""
    if parsed is None:
        return []
    named = [*(parsed.torch.src if parsed.torch is not None else ())]
    for kernel in parsed.kernel.values():
        named += kernel.src if kernel.backend in targets else ()
    paths = {file.path for file in shown.project.files}
    return [name for name in named if name not in paths and not set(name) & set("*?[")]


_OURS = frozenset({Cause.NO_TOOLCHAIN})
_CERTAIN = frozenset({Cause.COMPILE_ERROR, Cause.LINK_ERROR})
"""The other causes are limits of liftbench, or a layout that the skill does not show whole."""
_ELSEWHERE = frozenset({"missing_header", "wrong_arch"})


def _faults(shown: ShownProject, result: BuildResult) -> Iterator[tuple[CodeBlock | None, SkillFinding]]:
    """The first error of each file at its line of the skill; else the whole failure at build.toml."""
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
