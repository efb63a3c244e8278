"""How skills and reports on them look in a terminal.

Nothing is printed here; estimates are called estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from harness.report.figures import plural
from harness.skills.check import SkillReport
from harness.skills.install import Place
from harness.skills.sizes import FOLDERS, skill_size
from harness.skills.spec import ListedSkill, validate_skill

_COLUMN = 58
_SHOWN = 160
"""Characters of a description."""


def listed_row(one: ListedSkill, place: Place | None = None) -> dict[str, Any]:
    """For --json."""
    row: dict[str, Any] = {
        "directory": str(one.directory),
        "client": None if place is None else place.client,
        "scope": None if place is None else place.scope,
        "problem": one.problem,
        "findings": [finding.model_dump(mode="json") for finding in validate_skill(one.directory)],
    }
    if one.skill is not None:
        size = skill_size(one.skill)
        row |= one.skill.model_dump(mode="json", exclude={"body", "documents"})
        row["tokens_estimate"] = size.model_dump(mode="json") | {"total": size.total}
    return row


def skill_table(rows: Sequence[tuple[Place | None, ListedSkill]]) -> Table:
    """One row a skill; installed ones say for whom."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    installed = any(place is not None for place, _ in rows)
    if installed:
        table.add_column("installed for", no_wrap=True)
    table.add_column("skill", no_wrap=True)
    for name in ("catalog", "body", "total"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("files", justify="right")
    table.add_column("description (sizes: estimated tokens)")
    for place, one in rows:
        cells = [] if place is None else [f"{place.client}, {place.scope}"]
        if one.skill is None:
            table.add_row(*cells, one.directory.name, "-", "-", "-", "-", f"unreadable: {one.problem}")
            continue
        size = skill_size(one.skill)
        figures = [str(size.catalog), str(size.body), str(size.total), str(len(one.skill.files))]
        findings = validate_skill(one.directory)
        note = f"[{plural(len(findings), 'finding')}: `skills check`] " if findings else ""
        said = note + _clipped(one.skill.description)
        table.add_row(*cells, one.skill.name, *figures, said.replace("[", "\\["))
    return table


def _clipped(description: str) -> str:
    return description if len(description) <= _SHOWN else f"{description[:_SHOWN].rsplit(' ', 1)[0]} ..."


def skill_tree(one: ListedSkill) -> str:
    """Estimated tokens of every part of a skill, and what its frontmatter is warned of."""
    if one.skill is None:
        return f"{one.directory.name}: unreadable: {one.problem}"
    size = skill_size(one.skill)
    lines = [
        _line(one.skill.name, size.total, "tokens, estimated"),
        _line("  catalog line", size.catalog, "in every conversation"),
        _line("  SKILL.md body", size.body, "when it is used"),
    ]
    for folder in FOLDERS:
        files = size.in_folder(folder)
        if files:
            lines.append(_line(f"  {folder}/", size.folder(folder), "on demand"))
            lines += [_line(f"    {file.path.removeprefix(f'{folder}/')}", file.tokens) for file in files]
    lines += [_line(f"  {file.path}", file.tokens) for file in size.in_folder(None)]
    lines += [f"  {finding}" for finding in validate_skill(one.directory)]
    return "\n".join(lines)


def _line(name: str, tokens: int | None, note: str = "") -> str:
    figure = "no text" if tokens is None else f"{tokens:,}"
    return f"{name:<{_COLUMN}}{figure:>9}  {note}".rstrip()


def report_lines(report: SkillReport) -> Iterator[str]:
    """Findings first, then what became of the code, then one line on the whole."""
    yield from (str(finding) for finding in report.findings)
    for project in report.projects:
        for result in project.builds:
            where = f"{project.file}:{project.line}"
            yield f"{where}: {project.name} builds for {result.backend}: {'yes' if result.ok else 'NO'}"
    for language, counts in report.code.items():
        figures = {
            "built": counts.built,
            "parsed": counts.parsed,
            "not built": counts.not_built,
            "failed": counts.failed,
            "not read": counts.unread,
        }
        yield f"{language}: " + ", ".join(f"{number} {what}" for what, number in figures.items() if number)
    tokens, lines = report.body_tokens_estimate, report.body_lines
    body = (
        "no body"
        if tokens is None or lines is None
        else (f"body {plural(tokens, 'token')} (estimate), {plural(lines, 'line')}")
    )
    yield (
        f"{report.name or report.directory}: {'ok' if report.ok else 'has errors'}; {body}, "
        f"{plural(report.files, 'file')}, {plural(report.code_blocks, 'code block')}"
    )
