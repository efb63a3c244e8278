"""The static site: plain HTML and JSON that open from disk, one page per cell, no script but for sorting."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader
from markupsafe import Markup

from harness import __version__
from harness.board.entries import BoardRun, Division, Entry, division_of, entries_of
from harness.board.kernels import KernelRow, kernel_rows
from harness.board.ranks import Ranking, ranked
from harness.errors import UsageError
from harness.files import write_atomically
from harness.outcome import Cause
from harness.records import TrialRecord
from harness.records.flags import FLAGS
from harness.report import figures, plots, wording
from harness.report.experts import ExpertResult
from harness.report.figures import typeset
from harness.report.html import CODES, environment
from harness.report.html import TEMPLATES as REPORT_TEMPLATES
from harness.report.metrics import THRESHOLDS, metrics_for
from harness.report.schema import TrialRow
from harness.report.transcripts import read_transcript
from harness.report.trial_bodies import bodies
from harness.text import shorten

TEMPLATES: Final = Path(__file__).parent / "templates"
_KINDS: Final = ("gpu", "cpu", "emulated", "built")


@dataclass(frozen=True)
class Table:
    """One division: its entries in order, and their ranks."""

    division: Division
    entries: tuple[Entry, ...]
    ranking: Ranking
    kernels: tuple[KernelRow, ...]


def tables_of(runs: Sequence[BoardRun], experts: Sequence[ExpertResult]) -> list[Table]:
    """One for each division, GPUs first."""
    entries = entries_of(runs)
    scores = {entry.id: list(one.scores[entry.model, entry.arm]) for entry, one in _of_runs(entries, runs)}
    divisions = sorted({e.division for e in entries}, key=lambda d: (_KINDS.index(d.kind), d.device, d.slug))
    return [_table(division, entries, scores, runs, experts) for division in divisions]


def _of_runs(entries: Sequence[Entry], runs: Sequence[BoardRun]) -> Iterator[tuple[Entry, BoardRun]]:
    by_id = {one.run.run_id: one for one in runs}
    for entry in entries:
        yield entry, by_id[entry.run_id]


def _table(
    division: Division,
    entries: Sequence[Entry],
    scores: Mapping[str, Any],
    runs: Sequence[BoardRun],
    experts: Sequence[ExpertResult],
) -> Table:
    metric = next(one for one in metrics_for(1) if one.name == division.metric)
    own = [entry for entry in entries if entry.division == division]

    def order(entry: Entry) -> tuple[float, str]:
        figure = entry.figures.get(metric.name)
        return (-figure.value if figure else 0.0, entry.model + entry.skill)

    fit = {entry.id: scores[entry.id] for entry in own if not entry.not_ranked}
    ranking = ranked(fit, metric) if fit else Ranking({}, None)
    kernels = kernel_rows(division, own, [one for one in runs if division_of(one) == division], experts)
    return Table(division, tuple(sorted(own, key=order)), ranking, tuple(kernels))


def build_site(site: Path, runs: Sequence[BoardRun], experts: Sequence[ExpertResult] = ()) -> list[Table]:
    """Write the site; pages of earlier builds stay. Raises UsageError if a run is given twice."""
    ids = [one.run.run_id for one in runs]
    if len(set(ids)) != len(ids):
        raise UsageError("a run is given twice")
    tables = tables_of(runs, experts)
    made = _environment()
    for table in tables:
        place = site / "boards" / table.division.slug
        data = {"division": table.division.model_dump(), "entries": [_json(e, table) for e in table.entries]}
        write_atomically(place.with_suffix(".json"), json.dumps(data, indent=1) + "\n")
        write_atomically(place.with_suffix(".html"), _division_page(made, table))
    index = made.get_template("index.html.j2").render(tables=tables, **_shared(0))
    write_atomically(site / "index.html", index)
    cells = _CellPages(site, runs)
    for table in tables:
        for entry, one in _of_runs(table.entries, runs):
            page = made.get_template("entry.html.j2").render(e=entry, tasks=_tasks(entry, one), **_shared(1))
            write_atomically(site / "entries" / f"{entry.id}.html", page)
            cells.write(entry, one)
    return tables


def _division_page(made: Environment, table: Table) -> str:
    timed = [entry for entry in table.entries if entry.fast_levels][:2]
    kinds = ("treatment", "control")
    named = [(shorten(e.skill, 14), kind, e.fast_levels) for e, kind in zip(timed, kinds, strict=False)]
    return made.get_template("division.html.j2").render(
        t=table,
        thresholds=[f"{value:g}" for value in THRESHOLDS],
        curve=plots.fast_curve(named),
        **_shared(1),
    )


def _tasks(entry: Entry, one: BoardRun) -> list[str]:
    rows = one.summary.trials
    return list(dict.fromkeys(row.task for row in rows if (row.model, row.arm) == (entry.model, entry.arm)))


def _json(entry: Entry, table: Table) -> dict[str, Any]:
    rank = table.ranking.ranks.get(entry.id)
    return entry.model_dump(mode="json") | {"rank": None if rank is None else [rank.first, rank.last]}


def _environment() -> Environment:
    """Templates of the board, with the filters of reports."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {
        "typeset": typeset,
        "percent": figures.percent,
        "microseconds": figures.microseconds,
        "plural": figures.plural,
        "speedup": lambda value: typeset(figures.speedup(value)),
        "shown": lambda figure, metric: _shown(figure, metric),
        "lift": _lift,
    }
    return made


def _style() -> str:
    return (REPORT_TEMPLATES / "report.css").read_text() + (TEMPLATES / "site.css").read_text()


def _shared(depth: int) -> dict[str, Any]:
    """What every page gets; `depth`: folders below the site's root."""
    script = (TEMPLATES / "sort.js").read_text().strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "root": "../" * depth,
        "version": __version__,
        "script": Markup(script),
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "style": Markup(_style()),
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


def cell_path(entry: Entry, task: str) -> str:
    """Of a cell's page, from the site's root."""
    return f"cells/{entry.id}/{task.replace('/', '__')}.html"


class _CellPages:
    """Writes the pages of cells. Templates are compiled, and what all pages share is rendered, once."""

    def __init__(self, site: Path, runs: Sequence[BoardRun]) -> None:
        self._site = site
        self._runs = runs
        self._made = environment(runs[0].summary) if runs else _environment()
        self._made.loader = ChoiceLoader([FileSystemLoader(TEMPLATES), FileSystemLoader(REPORT_TEMPLATES)])
        terms = {"verdicts": list(CODES), "causes": list(Cause), "flags": FLAGS}
        self._shared = _shared(2) | {
            "glossary": Markup(self._made.get_template("glossary.html.j2").render(**terms)) if runs else ""
        }

    def write(self, entry: Entry, one: BoardRun) -> None:
        """A page for each task of an entry."""
        summary = one.summary
        self._made.filters["model"] = lambda name: wording.model_name(summary, name)
        labels = {arm.arm: arm.label for arm in summary.arms}
        trials = {(t.key.task, t.key.model, t.key.arm, t.key.repeat): t for t in one.trials}
        by_task: dict[str, list[TrialRow]] = {}
        for row in summary.trials:
            if (row.model, row.arm) == (entry.model, entry.arm):
                by_task.setdefault(row.task, []).append(row)
        folder = self._site / "cells" / entry.id
        folder.mkdir(parents=True, exist_ok=True)
        for task, rows in by_task.items():
            records = [trials[task, row.model, row.arm, row.repeat] for row in rows]
            told = {row.folder: read_transcript(one.store, r) for row, r in zip(rows, records, strict=True)}
            opened = bodies(self._made, summary.model_copy(update={"trials": tuple(rows)}), told, labels)
            page = self._made.get_template("cell.html.j2").render(
                entry=entry,
                task=task,
                run=one.run,
                rows=list(zip(rows, records, opened.trials, strict=True)),
                prompts=opened.prompts,
                audits=[a for a in one.audits if (a.task, a.model, a.arm) == (task, entry.model, entry.arm)],
                regrades=list(_regrades(entry, task, self._runs)),
                command=shlex.join(["liftbench", "regrade", str(one.store.folder), "--tasks", task]),
                **self._shared,
            )
            (self._site / cell_path(entry, task)).write_text(page, encoding="utf-8", errors="replace")


def _regrades(entry: Entry, task: str, runs: Sequence[BoardRun]) -> Iterator[tuple[BoardRun, TrialRecord]]:
    """Trials of this cell that were graded again."""
    for one in runs:
        if one.run.regraded_from == entry.run_id:
            for trial in one.trials:
                if (trial.key.task, trial.key.model, trial.key.arm) == (task, entry.model, entry.arm):
                    yield one, trial
