"""report.html: one self-contained page.

The page loads nothing and runs no script but ours: autoescape, and a content security policy that names our
script's hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness import __version__
from harness.outcome import Verdict
from harness.report import figures as f
from harness.report import kernels as k
from harness.report import plots
from harness.report.curves import fast_curve, turn_curve
from harness.report.headline import headlines
from harness.report.matrix import matrix_leads
from harness.report.records import ArmSummary, Comparison, MetricRow, Summary, TaskCell
from harness.report.typeset import typeset
from harness.text import clean

_TEMPLATES: Final = Path(__file__).parent / "templates"

CODES: Final[Mapping[Verdict, tuple[str, str]]] = {
    Verdict.CORRECT: ("1.0x", "correct; the figure is its speedup"),
    Verdict.WRONG_RESULT: ("wrong", "ran, wrong result"),
    Verdict.CRASHED: ("crash", "crashed"),
    Verdict.TIMED_OUT: ("timeout", "timed out"),
    Verdict.LOAD_FAILED: ("no load", "built, could not be loaded"),
    Verdict.BUILD_FAILED: ("no build", "did not build"),
    Verdict.NO_PROJECT: ("no code", "no project in the reply"),
    Verdict.CHEATED: ("cheat", "cheated"),
    Verdict.NOT_MEASURED: ("n/m", "not measured beyond what this machine can do"),
    Verdict.INFRA: ("infra", "lost to infrastructure, not scored"),
}
"""A chip's text and meaning, in the order of the legend."""


def _when(stamp: str) -> str:
    """2026-03-14T10:15:00Z -> 2026-03-14 10:15 UTC."""
    return f"{stamp[:10]} {stamp[11:16]} UTC" if stamp[10:11] == "T" and stamp.endswith("Z") else stamp


def _listed(names: Sequence[str], noun: str) -> list[str]:
    """Names (at odd positions) and what joins them; more than two are only counted."""
    if len(names) > 2:
        return [f"{len(names)} {noun}s"]
    return ["", names[0], *([" and ", names[1]] if len(names) == 2 else [])] if names else [f"no {noun}"]


def question(summary: Summary) -> list[tuple[str, bool]]:
    """The page's title, what was asked: pieces, and whether each is a name that should stay whole."""
    models = _listed([f.model_name(summary, name) for name in summary.head.models], "model")
    skills = list(dict.fromkeys(c.label for c in summary.comparisons))
    what = "GPU kernels" if summary.head.target == "cuda" else "kernels"
    verb = "Does" if len(skills) == 1 else "Do"
    parts = [(f"{verb} ", _listed(skills, "skill")), (" make ", models), (f" write better {what}?", [])]
    if not skills:
        parts = [("How well ", models), (f" writes {what}" if len(models) < 3 else f" write {what}", [])]
    pieces = []
    for lead, names in parts:
        pieces += [(lead, False), *((name, index % 2 == 1) for index, name in enumerate(names))]
    return [piece for piece in pieces if piece[0]]


def sentence(comparison: Comparison, confidence: str) -> str:
    """The primary row in words; confidence as `95% CI`."""
    row = comparison.row(comparison.conclusion.metric)
    noun = {
        "deployed": "Deployed speed",
        "correct": "The share of correct kernels",
        "compiles": "The compile rate",
    }[row.metric]
    if row.not_measured:
        return f"{noun} was not measured ({row.not_measured})."
    if row.lift is None:
        return "There is no pair of trials to compare yet."
    before, after = f.level(row.unit, row.control), f.level(row.unit, row.treatment)
    interval = "no interval"
    if row.low is not None and row.high is not None:
        low, high = (f.change(row.unit, end).removesuffix(" pts") for end in (row.low, row.high))
        interval = f"{confidence} {low} to {high}"
    p = "" if row.p_value is None else f", p = {f.p_value(row.p_value)}".replace("= <", "< ")
    basis = f"{f.plural(row.n_families, 'family')}, {f.plural(row.n_tasks, 'task')}"
    change = f.change(row.unit, row.lift)
    return typeset(f"{noun} goes from {before} to {after}, {change} ({interval}{p}; {basis}).")


def _chip(summary: Summary, position: int) -> dict[str, Any]:
    """One trial in the matrix: its short text, class and full description."""
    row = summary.trials[position]
    code, meaning = CODES[row.verdict]
    if row.verdict is Verdict.CORRECT:
        code = typeset(f.speedup(row.speedup))
        meaning = f"correct, {f.speedup(row.speedup)}"
    shade = row.verdict.value
    if row.verdict is Verdict.CORRECT and row.speedup is not None and row.speedup < 1:
        shade += " behind"
    built = row.verdict is Verdict.NOT_MEASURED and row.build_wall_s is not None
    if built:
        code, meaning = "built", "built; later stages not measured"
    return {"position": position, "text": code, "shade": shade, "title": f"run {row.repeat}: {meaning}"}


def _chips(summary: Summary, cell: TaskCell) -> list[dict[str, Any]]:
    return [_chip(summary, position) for position in cell.trials]


def _adjusted(row: MetricRow) -> str:
    if row.role == "primary":
        return "not adjusted"
    return f.p_value(row.p_holm) if row.role == "secondary" else "not tested"


def _strip(summary: Summary, comparison: Comparison) -> Markup:
    arms = []
    for arm, name in ((comparison.control, comparison.control_label), (comparison.treatment, "with skill")):
        rows = [t for t in summary.trials if (t.model, t.arm) == (comparison.model, arm)]
        arms.append((name, summary.arm(comparison.model, arm).kind, rows))
    return plots.speed_strip(arms)


def _fast_curve(summary: Summary, comparison: Comparison) -> Markup:
    sides = (("without", "control", comparison.control), ("with", "treatment", comparison.treatment))
    return fast_curve(
        [(name, kind, summary.arm(comparison.model, arm).fast_levels) for name, kind, arm in sides]
    )


def shades(share: float) -> str:
    """The class of a cell of the heat table: the more of the trials, the darker."""
    return f"heat-{sum(share >= step for step in (0.005, 0.03, 0.08, 0.15, 0.3))}"


def _environment(summary: Summary) -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # A second line of defence: whatever reaches the page was cleaned once more.
        finalize=lambda value: (
            clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    made.filters |= {
        "percent": f.percent,
        "speedup": lambda value: typeset(f.speedup(value)),
        "tokens": f.tokens,
        "dollars": f.dollars,
        "seconds": f.seconds,
        "p": f.p_value,
        "typeset": typeset,
        "level": lambda value, row: typeset(f.level(row.unit, value)),
        "change": lambda value, row: typeset(f.change(row.unit, value)),
        "interval": lambda row: typeset(f.interval(row)),
        "families": f.families,
        "words": lambda value: str(value).replace("_", " "),
        "plural": f.plural,
        "per_usd": lambda value, row: typeset(f.per_usd(row.unit, value)),
        "points": lambda value: typeset(f.change("share", value)),
        "lift": lambda cell, unit: typeset(f.change(unit, cell.lift)),
        "bounds": lambda one, unit: typeset(f.bounds(unit, one.low, one.high)),
        "model": lambda name: f.model_name(summary, name),
        "when": _when,
        "url": lambda path: quote(path),
        "kernel": k.short_name,
        "spills": k.spills,
        "total": k.total,
        "notable": k.notable,
    }
    return made


def _rate(arm: ArmSummary, name: str) -> dict[str, str] | None:
    rate = arm.compiled if name == "compiled" else arm.correct
    if rate is None:
        return None
    spread = "" if rate.low is None else f"({f.percent(rate.low)}, {f.percent(rate.high)})"
    return {
        "share": f.percent(rate.count / rate.n if rate.n else None),
        "count": f"{rate.count} of {rate.n}",
        "interval": spread,
    }


def render_html(summary: Summary) -> str:
    """The whole page."""
    environment = _environment(summary)
    script = (_TEMPLATES / "sort.js").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    labels = {arm.arm: (arm.label, arm.kind) for arm in summary.arms}
    return (
        environment.get_template("report.html.j2").render(
            s=summary,
            version=__version__,
            script=Markup(script),
            style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
            question=question(summary),
            ci=f.confidence(summary.head.alpha),
            sentence=lambda comparison: sentence(comparison, f.confidence(summary.head.alpha)),
            matrix_leads=matrix_leads(summary),
            headlines=[typeset(text) for text in headlines(summary)],
            adjusted=_adjusted,
            rate=_rate,
            per_correct=f.per_correct,
            plan=typeset(f.plan_line(summary)),
            gap=f.gap_line(summary),
            owed=f.owed_line(summary.progress.owed, summary.progress.planned),
            infra=f.infra_line(summary.progress.infra_failures, summary.progress.infra_trials),
            chips=lambda cell: _chips(summary, cell),
            labels=labels,
            codes={verdict.value: code for verdict, code in CODES.items()},
            present={row.verdict.value for row in summary.trials},
            levels=plots.levels,
            forest=lambda row: plots.forest(row, f.confidence(summary.head.alpha)),
            fast_curve=lambda comparison: _fast_curve(summary, comparison),
            arm_curve=lambda arm: fast_curve([("all", "treatment", arm.fast_levels)]),
            turn_curve=turn_curve,
            shades=shades,
            strip=lambda comparison: _strip(summary, comparison),
            causes=plots.causes(summary.failures, labels),
        )
        + "\n"
    )
