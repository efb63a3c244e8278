"""Checks a whole skill: the specification, and that the code which it shows is code.

Owns: the report on a skill. Does not own: how a project is built (the caller hands in a function).
Invariant: without `build` nothing of the skill is executed or compiled; a skill that teaches code
which does not parse or build is reported at the line of that code.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from harness.builder.config import build_toml
from harness.errors import UsageError
from harness.records import BuildResult, Project, Record, Target
from harness.skills.blocks import CodeBlock, ShownProject, code_blocks, shown_projects
from harness.skills.findings import SkillFinding, error, warning
from harness.skills.frontmatter import FrontmatterError, decode
from harness.skills.spec import FILE, estimate_tokens, read_skill, skill_files, validate_skill
from sandboxes.owners import owned_folder

Build = Callable[[Project, Target], BuildResult]


class ShownProjectReport(Record):
    """A project that the skill shows, and what became of building it."""

    file: str
    line: int
    """Of its build.toml block."""
    name: str | None
    """`general.name`; None when build.toml is not valid."""
    paths: tuple[str, ...]
    targets: tuple[Target, ...]
    """Of its backends those that we can build."""
    builds: tuple[BuildResult, ...] = ()
    """One for each target; empty when building was not asked for."""


class SkillReport(Record):
    """All that is known about a skill without asking a model."""

    directory: str
    name: str | None
    """None when SKILL.md cannot be read."""
    digest: str | None
    body_tokens_estimate: int | None
    """UTF-8 bytes / 3.6: an estimate."""
    body_lines: int | None
    files: int
    code_blocks: int
    projects: tuple[ShownProjectReport, ...]
    findings: tuple[SkillFinding, ...]

    @property
    def ok(self) -> bool:
        """No finding is an error."""
        return all(f.severity != "error" for f in self.findings)


def check_skill(directory: Path, *, build: Build | None = None) -> SkillReport:
    """Check the skill in `directory`; with `build`, also build the projects it shows, for each target."""
    findings = validate_skill(directory)
    files = skill_files(directory) if directory.is_dir() else []
    projects: list[ShownProjectReport] = []
    count = 0
    for file, text in _documents(directory, files):
        blocks = code_blocks(file, text)
        count += len(blocks)
        findings += [f for block in blocks for f in _block_findings(block)]
        for shown in shown_projects(blocks):
            report, faults = _project_report(shown, build)
            projects.append(report)
            findings += faults
    findings += [f for name in files if name.endswith(".py") for f in _script_findings(directory, name)]
    try:
        skill = read_skill(directory)
    except UsageError:
        skill = None  # validate_skill has said why
    return SkillReport(
        directory=str(directory),
        name=skill.name if skill else None,
        digest=skill.digest if skill else None,
        body_tokens_estimate=estimate_tokens(skill.body.strip()) if skill else None,
        body_lines=len(skill.body.strip().split("\n")) if skill else None,
        files=len(files),
        code_blocks=count,
        projects=tuple(projects),
        findings=tuple(sorted(findings, key=lambda f: (f.file != FILE, f.file, f.line or 0))),
    )


def _documents(directory: Path, files: list[str]) -> Iterator[tuple[str, str]]:
    """The skill's readable Markdown files; an unreadable SKILL.md is validate_skill's finding."""
    for name in files:
        if name.endswith(".md"):
            try:
                yield name, decode((directory / name).read_bytes())
            except FrontmatterError:
                continue


def _block_findings(block: CodeBlock) -> Iterator[SkillFinding]:
    """Python and TOML must parse: an error for a complete file, a warning for a fragment."""
    report = warning if block.path is None else error
    if block.language == "python" and not block.text.lstrip().startswith(">>>"):
        fault = _python_fault(textwrap.dedent(block.text))
        if fault is not None:
            yield report(block.file, block.line + fault[0], f"this Python does not parse: {fault[1]}")
    elif block.language == "toml" and block.path != "build.toml":
        try:
            tomllib.loads(block.text)
        except tomllib.TOMLDecodeError as undecodable:
            yield report(block.file, block.line, f"this TOML does not parse: {undecodable}")


def _python_fault(source: str) -> tuple[int, str] | None:
    """1-based line and message of a syntax error, or None."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        return getattr(fault, "lineno", None) or 1, getattr(fault, "msg", None) or str(fault)
    return None


def _script_findings(directory: Path, name: str) -> Iterator[SkillFinding]:
    try:
        fault = _python_fault(decode((directory / name).read_bytes()))
    except FrontmatterError as undecodable:
        yield error(name, undecodable.line, undecodable.message)
        return
    if fault is not None:
        yield error(name, fault[0], f"does not parse: {fault[1]}")


def _project_report(
    shown: ShownProject, build: Build | None
) -> tuple[ShownProjectReport, list[SkillFinding]]:
    block, project = shown.build_toml, shown.project
    parsed, faults = _build_toml(block)
    targets: tuple[Target, ...] = ()
    if parsed is not None:
        targets = tuple(t for t in get_args(Target) if t in parsed.general.backends)
    results = tuple(build(project, target) for target in targets) if build is not None else ()
    for result in results:
        if result.finding is not None:
            message = f"the project shown here does not build for {result.backend}: {result.finding.message}"
            faults.append(error(block.file, block.line, message))
    report = ShownProjectReport(
        file=block.file,
        line=block.line,
        name=parsed.general.name if parsed is not None else None,
        paths=tuple(f.path for f in project.files),
        targets=targets,
        builds=results,
    )
    return report, faults


def _build_toml(block: CodeBlock) -> tuple[build_toml.BuildToml | None, list[SkillFinding]]:
    with owned_folder("skill") as scratch:
        data = block.text.encode()
        (Path(scratch) / "build.toml").write_bytes(data)
        validity = build_toml.check(Path(scratch))
    faults = [warning(block.file, block.line, message) for message in validity.warnings]
    if validity.finding is not None:
        return None, [*faults, error(block.file, block.line, validity.finding.message)]
    return build_toml.read_build_toml(data), faults
