"""report.html: one self-contained page.

Every value is escaped, and the content security policy allows only our script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from harness import __version__
from harness.outcome import Cause, Verdict
from harness.records.flags import FLAGS
from harness.report import evidence, figures, plots, wording
from harness.report.comparison_schema import Comparison, MetricRow
from harness.report.figures import typeset
from harness.report.schema import Summary, TaskCell
from harness.report.transcripts import Transcript
from harness.report.trial_bodies import bodies
from harness.text import clean

TEMPLATES: Final = Path(__file__).parent / "templates"

CODES: Final[Mapping[Verdict, str]] = {
    Verdict.CORRECT: "1.0x",
    Verdict.WRONG_RESULT: "wrong",
    Verdict.CRASHED: "crash",
    Verdict.TIMED_OUT: "timeout",
    Verdict.LOAD_FAILED: "no load",
    Verdict.BUILD_FAILED: "no build",
    Verdict.NO_PROJECT: "no code",
    Verdict.CHEATED: "cheat",
    Verdict.NOT_MEASURED: "n/m",
    Verdict.INFRA: "infra",
}
"""A chip's text, in the order of the legend."""


def _when(stamp: str) -> str:
    return f"{stamp[:10]} {stamp[11:16]} UTC" if stamp[10:11] == "T" and stamp.endswith("Z") else stamp


def question(summary: Summary) -> str:
    """The page's title; more than two names are only counted."""
    models = [wording.model_name(summary, name) for name in summary.head.models]
    skills = list(dict.fromkeys(c.label for c in summary.comparisons))
    who = " and ".join(models) if len(models) <= 2 else figures.plural(len(models), "model")
    with_ = " and ".join(skills) if len(skills) <= 2 else figures.plural(len(skills), "skill")
    what = "GPU kernels" if summary.head.target == "cuda" else "kernels"
    if not skills:
        return f"How well {who} write{'s' if len(models) == 1 else ''} {what}"
    return f"{'Does' if len(skills) == 1 else 'Do'} {with_} make {who} write better {what}?"


_NOUNS: Final = {
    "deployed": "Deployed speed",
    "correct": "The share of correct kernels",
    "compiles": "The compile rate",
    "correct_emulated": "The share of kernels that are correct on the emulated GPU (not a GPU's result)",
}


def _sentence(comparison: Comparison, confidence: str) -> str:
    """The primary row in words; confidence as `95% CI`."""
    row = comparison.primary
    noun = _NOUNS[row.metric]
    if row.not_measured:
        return f"{noun} was not measured ({row.not_measured})."
    if row.lift is None:
        return "There is no pair of trials to compare yet."
    before, after = figures.level(row.unit, row.control), figures.level(row.unit, row.treatment)
    interval = "no interval"
    if row.low is not None and row.high is not None:
        low, high = figures.bare_change(row.unit, row.low), figures.bare_change(row.unit, row.high)
        interval = f"{confidence} {low} to {high}"
    p = "" if row.p_value is None else f", p = {figures.p_value(row.p_value)}".replace("= <", "< ")
    basis = f"{figures.plural(row.n_families, 'family')}, {figures.plural(row.n_tasks, 'task')}"
    change = figures.change(row.unit, row.lift)
    return typeset(f"{noun} goes from {before} to {after}, {change} ({interval}{p}; {basis}).")


def _chips(summary: Summary, cell: TaskCell) -> Iterator[dict[str, Any]]:
    """The trials of a cell: short text, class and full description of each."""
    for position in cell.trials:
        row = summary.trials[position]
        text, meaning, shade = CODES[row.verdict], row.verdict.meaning, row.verdict.value
        if row.verdict is Verdict.CORRECT:
            text, meaning = typeset(figures.speedup(row.speedup)), f"correct, {figures.speedup(row.speedup)}"
            shade += " behind" if row.speedup is not None and row.speedup < 1 else ""
        elif row.verdict is Verdict.NOT_MEASURED and row.build_wall_s is not None:
            text, meaning = "built", "built; later stages not measured"
        title = f"run {row.repeat}: {meaning}"
        yield {"position": position, "text": text, "shade": shade, "title": title}


def _tally(summary: Summary) -> tuple[str, str]:
    """The class and title of the banner: the decision, or how many comparisons have which."""
    found: Counter[str] = Counter(one.conclusion.decision for one in summary.comparisons)
    if len(summary.comparisons) == 1:
        [decision] = found
        return decision, decision.capitalize()
    words = {"helps": "help", "hurts": "hurt", "inconclusive": "inconclusive"}
    shade = "hurts" if found["hurts"] else "helps" if found["helps"] else "inconclusive"
    counts = ", ".join(f"{found[key]} {word}" for key, word in words.items() if found[key])
    return shade, f"Of {len(summary.comparisons)} comparisons: {counts}"


def _adjusted(row: MetricRow) -> str:
    words = {"primary": "not adjusted", "descriptive": "not tested"}
    return words.get(row.role, figures.p_value(row.p_holm))


def _strip(summary: Summary, comparison: Comparison) -> Markup:
    arms = []
    for arm, name in ((comparison.control, comparison.control_label), (comparison.treatment, "with skill")):
        rows = [t for t in summary.trials if (t.model, t.arm) == (comparison.model, arm)]
        arms.append((name, summary.arm(comparison.model, arm).kind, rows))
    return plots.speed_strip(arms)


def environment(summary: Summary | None) -> Environment:
    """Templates of one run's pages; without a summary the filter `model` is the caller's to set."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Defense in depth: whatever reaches the page is cleaned again.
        finalize=lambda value: (
            clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    plain = (
        figures.percent,
        figures.tokens,
        figures.dollars,
        figures.seconds,
        figures.families,
        figures.share_bounds,
        figures.plural,
        typeset,
        quote,
    )
    made.filters |= {function.__name__: function for function in plain}
    made.filters |= {
        function.__name__: function
        for function in (evidence.short_name, evidence.spills, evidence.total, evidence.notable)
    }
    made.filters |= {
        "p": figures.p_value,
        "speedup": lambda value: typeset(figures.speedup(value)),
        "level": lambda value, row: typeset(figures.level(row.unit, value)),
        "change": lambda value, row: typeset(figures.change(row.unit, value)),
        "points": lambda value: typeset(figures.change("share", value)),
        "bounds": lambda one, unit="share": typeset(figures.bounds(unit, one)),
        "per_usd": lambda value, row: typeset(figures.per_usd(row.unit, value)),
        "words": lambda value: str(value).replace("_", " "),
        "model": lambda name: wording.model_name(summary, name) if summary else name,
        "when": _when,
        "microseconds": figures.microseconds,
        "breakable": lambda name: (
            escape(clean(name)).replace("_", Markup("_<wbr>")).replace("/", Markup("/<wbr>"))
        ),
        "size": lambda characters: f"{characters / 1000:.1f} kB",
    }
    return made


def render_html(summary: Summary, transcripts: Mapping[str, Transcript] | None = None) -> str:
    """The whole page; transcripts: by the trial's folder."""
    made = environment(summary)
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    confidence = figures.confidence(summary.head.alpha)
    labels = {arm.arm: (arm.label, arm.kind) for arm in summary.arms}
    opened = bodies(made, summary, transcripts or {}, {arm.arm: arm.label for arm in summary.arms})
    return (
        made.get_template("report.html.j2").render(
            s=summary,
            version=__version__,
            script=Markup(script),
            style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
            question=question(summary),
            ci=confidence,
            sentence=lambda comparison: _sentence(comparison, confidence),
            headlines=[typeset(text) for text in wording.headlines(summary)],
            tally=_tally(summary) if summary.comparisons else None,
            bodies=opened.trials,
            prompts=opened.prompts,
            packed=opened.packed,
            verdicts=list(CODES),
            causes=list(Cause),
            flags=FLAGS,
            adjusted=_adjusted,
            w=wording,
            plots=plots,
            chips=lambda cell: _chips(summary, cell),
            labels=labels,
            codes=CODES,
            present={row.verdict for row in summary.trials},
            shades=lambda share: f"heat-{sum(share >= step for step in (0.005, 0.03, 0.08, 0.15, 0.3))}",
            strip=lambda comparison: _strip(summary, comparison),
        )
        + "\n"
    )
