"""The pages of the site."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader
from markupsafe import Markup

from harness import __version__
from harness.board.entries import Entry
from harness.board.ranks import Rank
from harness.board.runs import BoardRun, Division
from harness.board.tables import Claim, Table
from harness.outcome import Cause
from harness.records import TrialRecord
from harness.records.flags import FLAGS
from harness.report import figures, plots, wording
from harness.report.figures import typeset
from harness.report.html import CODES, environment
from harness.report.html import TEMPLATES as REPORT_TEMPLATES
from harness.report.metrics import THRESHOLDS
from harness.report.schema import FastLevel, TrialRow
from harness.report.transcripts import Transcript, read_transcript
from harness.report.trial_bodies import bodies
from harness.text import clean, shorten

TEMPLATES: Final = Path(__file__).parent / "templates"


def cell_path(entry: Entry, task: str) -> str:
    """Of a cell's page, from the site's root."""
    return f"cells/{entry.id}/{task.replace('/', '__')}.html"


@dataclass(frozen=True)
class Pages:
    """Renders tables and entries."""

    environment: Environment

    def index(self, tables: Sequence[Table]) -> str:
        return self.environment.get_template("index.html.j2").render(tables=tables, **_shared(0))

    def division(self, table: Table, curve: Sequence[tuple[str, Sequence[FastLevel]]]) -> str:
        kinds = ("treatment", "control")
        named = [(shorten(name, 9), kind, levels) for (name, levels), kind in zip(curve, kinds, strict=False)]
        return self.environment.get_template("division.html.j2").render(
            t=table,
            thresholds=[f"{value:g}" for value in THRESHOLDS],
            curve=plots.fast_curve(named),
            families=sorted({row.family for row in table.kernels}),
            **_shared(1),
        )

    def entry(self, claim: Claim, rank: Rank | None) -> str:
        page = self.environment.get_template("entry.html.j2")
        return page.render(e=claim.entry, tasks=claim.tasks, rank=rank, **_shared(1))


def make_pages() -> Pages:
    """Templates of the board, with the filters of reports."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    made.filters |= {
        "typeset": typeset,
        "percent": figures.percent,
        "microseconds": figures.microseconds,
        "plural": figures.plural,
        "speedup": lambda value: typeset(figures.speedup(value)),
        "shown": _shown,
        "lift": _lift,
        "own": _own,
    }
    return Pages(made)


@cache
def _shared(depth: int) -> dict[str, Any]:
    """What every page gets; `depth`: folders below the site's root."""
    script = (TEMPLATES / "sort.js").read_text().strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "root": "../" * depth,
        "version": __version__,
        "script": Markup(script),
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "style": Markup((REPORT_TEMPLATES / "report.css").read_text() + (TEMPLATES / "site.css").read_text()),
        "forest": lambda comparison: plots.forest(comparison.primary, "95% CI"),
    }


def _shown(figure: Any, metric: str) -> str:
    """A figure with its interval."""
    if figure is None:
        return "-"
    if metric == "deployed":
        return typeset(f"{figures.level('ratio', figure.value)} {figures.bounds('ratio', figure)}".strip())
    return typeset(f"{figures.percent(figure.value)} {figures.share_bounds(figure)}".strip())


def _lift(entry: Entry, metric: str) -> str:
    """The lift of a skill's arm in one metric, with its interval."""
    if entry.comparison is None:
        return "-"
    rows = [row for row in entry.comparison.rows if row.metric == metric]
    if not rows or rows[0].lift is None:
        return "-"
    return typeset(figures.lifted(rows[0].unit, rows[0].lift, rows[0]))


def _own(reasons: Sequence[str], division: Division) -> list[str]:
    """Reasons beside those that hold for the whole table."""
    return [reason for reason in reasons if reason not in division.not_ranked]


def write_cells(site: Path, one: BoardRun, entries: Sequence[Entry], own: Sequence[BoardRun]) -> None:
    """A page for each task of each entry of a run."""
    cells = _Cells(site, one, [other for other in own if other.run.regraded_from == one.run.run_id])
    for entry in entries:
        cells.write(entry)


@cache
def _cell_templates() -> tuple[Environment, Markup]:
    """Compiled once in a process; and the glossary, which all pages share. `model` is set for each run."""
    made = environment(None)
    made.loader = ChoiceLoader([FileSystemLoader(TEMPLATES), FileSystemLoader(REPORT_TEMPLATES)])
    made.filters["digest"] = lambda text: hashlib.sha256(text.encode()).hexdigest()
    terms = {"verdicts": list(CODES), "causes": list(Cause), "flags": FLAGS}
    return made, Markup(made.get_template("glossary.html.j2").render(**terms))


class _Cells:
    """Writes the pages of the cells of one run."""

    def __init__(self, site: Path, one: BoardRun, regrades: Sequence[BoardRun]) -> None:
        self._site, self._one, self._regrades = site, one, regrades
        self._made, glossary = _cell_templates()
        self._made.filters["model"] = lambda name: wording.model_name(one.summary, name)
        self._shared = _shared(2) | {"glossary": glossary}

    def write(self, entry: Entry) -> None:
        one, summary = self._one, self._one.summary
        labels = {arm.arm: arm.label for arm in summary.arms}
        trials = {(t.key.task, t.key.model, t.key.arm, t.key.repeat): t for t in one.trials}
        by_task: dict[str, list[TrialRow]] = {}
        for row in summary.trials:
            if (row.model, row.arm) == (entry.model, entry.arm):
                by_task.setdefault(row.task, []).append(row)
        (self._site / "cells" / entry.id).mkdir(parents=True, exist_ok=True)
        for task, rows in by_task.items():
            records = [trials[task, row.model, row.arm, row.repeat] for row in rows]
            told = [read_transcript(one.store, record) for record in records]
            page = self._page(entry, task, rows, records, told, labels)
            (self._site / cell_path(entry, task)).write_text(page, encoding="utf-8", errors="replace")

    def _page(
        self,
        entry: Entry,
        task: str,
        rows: Sequence[TrialRow],
        records: Sequence[TrialRecord],
        told: Sequence[Transcript],
        labels: dict[str, str],
    ) -> str:
        one = self._one
        by_folder = {row.folder: said for row, said in zip(rows, told, strict=True)}
        part = one.summary.model_copy(update={"trials": tuple(rows)})
        opened = bodies(self._made, part, by_folder, labels)
        return self._made.get_template("cell.html.j2").render(
            entry=entry,
            task=task,
            run=one.run,
            rows=list(zip(rows, records, told, opened.trials, strict=True)),
            prompts=opened.prompts,
            audits=[a for a in one.audits if (a.task, a.model, a.arm) == (task, entry.model, entry.arm)],
            regrades=list(self._again(entry, task)),
            command=regrade_command(one, task),
            **self._shared,
        )

    def _again(self, entry: Entry, task: str) -> Iterator[tuple[BoardRun, TrialRecord]]:
        """Trials of this cell that the board's owner graded again."""
        for one in self._regrades:
            for trial in one.trials:
                if (trial.key.task, trial.key.model, trial.key.arm) == (task, entry.model, entry.arm):
                    yield one, trial


def regrade_command(one: BoardRun, task: str) -> str:
    """Grades a cell again on any machine. RUNS: the folder that holds the run's; TASKS: the run's tasks."""
    words = ["liftbench", "regrade", one.store.folder.name, "--runs-dir", "RUNS", "--tasks", task]
    return shlex.join([*words, "--target", one.run.config.target, "--tasks-root", "TASKS"])
