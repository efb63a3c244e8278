"""Checks and measures a whole skill: specification, code, facts, leaks, tokens.

Nothing of the skill is executed, and nothing is compiled without `build`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from harness.errors import UsageError
from harness.records import Record, Skill
from harness.skills.code_blocks import (
    CHECKED,
    CodeBlock,
    ShownProject,
    code_blocks,
    code_file,
    is_compiled,
    is_parsed,
    parse_block,
    shown_as_wrong,
    shown_projects,
)
from harness.skills.compile_blocks import Build, Outcome, ShownProjectReport, build_shown, compile_block
from harness.skills.fact_check import fact_findings, hardware_findings
from harness.skills.frontmatter import FrontmatterError, decode
from harness.skills.overlap import overlaps
from harness.skills.spec import (
    DOCUMENT_LIMIT,
    FILE,
    SkillFinding,
    error,
    read_skill,
    skill_files,
    validate_skill,
    warning,
)
from harness.suite.catalogue import LoadedTask
from harness.text import estimate_tokens

_BUILDER: Final = re.compile(r"kernel-builder|build\.toml|cuda-capabilities")
_OTHER_BUILD: Final = re.compile(r"cpp_extension|load_inline|CUDAExtension")


class CodeCounts(Record):
    """Counts of fenced blocks and files in one language."""

    built: int = 0
    parsed: int = 0
    not_built: int = 0
    """Marked `fragment`, dependent on code that is not shown, or not compiled for lack of `--build`."""
    failed: int = 0
    unread: int = 0


class SkillReport(Record):
    directory: str
    name: str | None
    digest: str | None
    body_tokens_estimate: int | None
    """UTF-8 bytes / 3.6."""
    body_lines: int | None
    files: int
    code_blocks: int
    code: dict[str, CodeCounts]
    projects: tuple[ShownProjectReport, ...]
    findings: tuple[SkillFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(f.severity != "error" for f in self.findings)


def check_skill(
    directory: Path,
    *,
    build: Build | None = None,
    tasks: Sequence[LoadedTask] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SkillReport:
    """Check the skill in `directory`.

    With `build`, its code is compiled: projects for each of their targets, pieces for the one they need;
    `progress` is called with the number of finished and of all builds. With `tasks`, leaks are searched for.
    """
    findings = validate_skill(directory)
    texts: dict[str, str] = {}
    files = skill_files(directory) if directory.is_dir() else []
    for name in files:
        data = (directory / name).read_bytes()
        if len(data) > DOCUMENT_LIMIT:
            findings.append(warning(name, None, f"is larger than {DOCUMENT_LIMIT >> 10} KiB: not looked at"))
            continue
        try:
            texts[name] = decode(data)
        except FrontmatterError as undecodable:
            if name != FILE and code_file(name, "").language in CHECKED:
                findings.append(warning(name, undecodable.line, f"{undecodable.message}: not looked at"))
    code = _collected(texts)
    findings += code.judge(build, progress)
    for name, text in texts.items():
        figures = hardware_findings(name, text)
        facts = fact_findings(name, text, kernel_builder=name in code.for_builder)
        told = {one.line for one in figures}
        findings += [*figures, *(f for f in facts if f.line not in told and not code.failed_at(f))]
    findings = [_softened(finding, code.blocks, texts) for finding in findings]
    findings += _leak_findings(texts, tasks)
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
        code_blocks=sum(block.line > 0 for block in code.blocks),
        code=code.counts(),
        projects=tuple(code.projects),
        findings=tuple(sorted(findings, key=lambda f: (f.file != FILE, f.file, f.line or 0))),
    )


@dataclass
class _Code:
    """All code of a skill, and the result for each piece."""

    for_builder: frozenset[str]
    """Files of a skill about kernel-builder, except those about PyTorch's cpp_extension."""
    blocks: list[CodeBlock] = field(default_factory=list)
    shown: list[ShownProject] = field(default_factory=list)
    outcomes: dict[CodeBlock, Outcome] = field(default_factory=dict)
    projects: list[ShownProjectReport] = field(default_factory=list)

    def judge(self, build: Build | None, progress: Callable[[int, int], None]) -> list[SkillFinding]:
        """Parse, then build in parallel on all cores."""
        found = list(self._parsed())
        in_projects = {block for shown in self.shown for block in shown.blocks}
        self.outcomes |= {block: "not_built" for block in self.blocks if is_compiled(block)}
        lacking: list[str] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            jobs = [pool.submit(build_shown, shown, build) for shown in self.shown]
            if build is not None:
                jobs += [
                    pool.submit(compile_block, block, build, kernel_builder=block.file in self.for_builder)
                    for block in self.blocks
                    if is_compiled(block) and not block.fragment and block not in in_projects
                ]
            try:
                for done, _ in enumerate(as_completed(jobs), 1):
                    if build is not None:
                        progress(done, len(jobs))
            except BaseException:  # Ctrl-C: no further build starts
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for judged in (job.result() for job in jobs):
            self.outcomes |= judged.outcomes
            self.projects += [judged.project] if judged.project is not None else []
            found += judged.findings
            lacking += judged.lacking
        found += [warning(FILE, None, f"not built here: {why}") for why in dict.fromkeys(lacking)]
        return found

    def _parsed(self) -> Iterator[SkillFinding]:
        tomls = {shown.build_toml for shown in self.shown}
        for block in self.blocks:
            self.outcomes[block] = "unread"
            if not block.closed:
                message = (
                    "this code block is not closed, so what follows is code to a reader: end it with a line "
                    "of as many marks (``` or ~~~) as it begins with"
                )
                yield error(block.file, block.line, message)
            if not is_parsed(block):
                continue
            self.outcomes[block] = "not_built" if block.fragment else "parsed"
            found = [] if block.fragment or block in tomls else parse_block(block)
            if found:
                self.outcomes[block] = "failed"
            yield from found

    def failed_at(self, finding: SkillFinding) -> bool:
        """Whether the finding is inside a failed piece, whose own error is enough."""
        failed = (block for block, outcome in self.outcomes.items() if outcome == "failed")
        return any(block.file == finding.file and block.holds(finding.line or 1) for block in failed)

    def counts(self) -> dict[str, CodeCounts]:
        """By language, in alphabetical order."""
        found: dict[str, Counter[str]] = {}
        for block, outcome in self.outcomes.items():
            found.setdefault(block.language or "text", Counter())[outcome] += 1
        return {language: CodeCounts.model_validate(dict(found[language])) for language in sorted(found)}


def _softened(finding: SkillFinding, blocks: Sequence[CodeBlock], texts: Mapping[str, str]) -> SkillFinding:
    """Turns an error in code that the skill shows as wrong into a note."""
    if finding.severity != "error" or not finding.line:
        return finding
    for block in blocks:
        inside = block.file == finding.file and block.line and block.holds(finding.line)
        if inside and block.closed and shown_as_wrong(block, texts[block.file]):
            message = f"{finding.message} (shown as wrong, it seems: mark such code with the word `fragment`)"
            return finding.model_copy(update={"severity": "note", "message": message})
    return finding


def _collected(texts: Mapping[str, str]) -> _Code:
    """Markdown blocks, code files, and the projects that they make up."""
    about = any(_BUILDER.search(text) for text in texts.values())
    code = _Code(frozenset(n for n, text in texts.items() if about and not _OTHER_BUILD.search(text)))
    roots = {str(PurePosixPath(name).parent) for name in texts if PurePosixPath(name).name == "build.toml"}
    for name, text in texts.items():
        if name.endswith(".md"):
            blocks = code_blocks(name, text)
            code.blocks += blocks
            code.shown += shown_projects(blocks)
        elif not any(_inside(name, root) for root in roots):
            file = code_file(name, text)
            code.blocks += [file] if file.language in CHECKED else []
    for root in sorted(roots):
        inside = [code_file(name, text) for name, text in texts.items() if _inside(name, root)]
        members = [replace(file, path=file.file.removeprefix(f"{root}/")) for file in inside]
        code.blocks += [block for block in members if is_compiled(block) or is_parsed(block)]
        code.shown.append(ShownProject(tuple(members)))
    return code


def _inside(name: str, root: str) -> bool:
    return root == "." or name.startswith(f"{root}/")


def _leak_findings(texts: Mapping[str, str], tasks: Sequence[LoadedTask]) -> Iterator[SkillFinding]:
    """The largest leak of each task in each file."""
    told: set[tuple[str, str]] = set()
    for leak in overlaps(texts, tasks) if tasks else ():
        if (leak.task, leak.file) not in told:
            told.add((leak.task, leak.file))
            where = f"{leak.source_file}:{leak.source_line}"
            message = (
                f"the solution of {leak.task} has this too ({where}), {leak.longest} tokens in a row and "
                f"{leak.count} rows of 13 in all: an evaluation leaves that task out of every comparison"
            )
            yield warning(leak.file, leak.line, message)


FOLDERS = ("references", "scripts", "assets")


class FileSize(Record):
    """A file other than SKILL.md."""

    path: str
    tokens: int | None


class SkillSize(Record):
    """Estimated tokens of a skill."""

    catalog: int
    body: int
    files: tuple[FileSize, ...]

    @property
    def total(self) -> int:
        """Everything that can be read."""
        return self.catalog + self.body + sum(file.tokens or 0 for file in self.files)

    def in_folder(self, name: str | None) -> list[FileSize]:
        """The files below that folder, or with None those in none of FOLDERS."""
        if name is not None:
            return [file for file in self.files if file.path.startswith(f"{name}/")]
        return [file for file in self.files if file.path.partition("/")[0] not in FOLDERS]


def catalog_line(skill: Skill) -> str:
    """The line by which a client lists a skill that is not in use yet."""
    return f"- {skill.name}: {' '.join(skill.description.split())}"


def skill_size(skill: Skill) -> SkillSize:
    """The sizes of the parts of `skill`."""
    texts = skill.documents
    files = tuple(
        FileSize(path=name, tokens=estimate_tokens(texts[name]) if name in texts else None)
        for name in skill.files
        if name != FILE
    )
    return SkillSize(
        catalog=estimate_tokens(catalog_line(skill)), body=estimate_tokens(skill.body.strip()), files=files
    )
