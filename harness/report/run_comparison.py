"""Two runs side by side: what was different between them, and what changed by more than noise.

Trials are pooled by task within one model and arm of each run, as a lift pools them, and tested by family
with the same sign-flip test; p values are Holm-adjusted, those of the primary metric among themselves.
Tasks that changed or that a skill repeats are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final, Literal

from harness import stats
from harness.errors import UsageError
from harness.records import Arm, Metric, Record, RunConfig, RunRecord, RunSettings, TrialKey, TrialRecord
from harness.report import metrics
from harness.report.arms import arm_labels
from harness.report.comparison_schema import MetricEffect
from harness.report.headline import HeadlineRow, headline
from harness.report.summary import score_run
from harness.report.wording import short_model
from harness.study.store import RunStore

ALPHA: Final = 0.05
_COMPARED: Final = ("compiles", "correct_emulated", "correct", "deployed")
_ABSENT: Final = "none"

Outcome = Literal["better", "worse", "within noise", "not measured"]


class Change(Record):
    """Something that differs between the runs."""

    what: str
    a: str
    b: str


class Side(Record):
    """One of the runs."""

    run: str
    created: str
    regraded_from: str | None
    metric: Metric
    comparisons: tuple[HeadlineRow, ...]


class PairedRow(MetricEffect):
    """One metric: `control` is A, `treatment` is B, `lift` B minus A (B / A of a ratio)."""

    p_holm: float | None
    outcome: Outcome


class Cell(Record):
    """One model and arm of A beside one of B, or the lift of one skill in both."""

    what: Literal["level", "lift"]
    """`lift`: with the skill minus without, a difference of differences."""
    model_a: str
    model_b: str
    label_a: str
    label_b: str
    trials_a: int
    trials_b: int
    rows: tuple[PairedRow, ...]


class VerdictChange(Record):
    """Trials with the same reply whose verdict went from `a` to `b`; the same where nothing changed."""

    a: str
    b: str
    trials: tuple[str, ...]


class RunComparison(Record):
    """Everything that `compare` says."""

    a: Side
    b: Side
    changes: tuple[Change, ...]
    left_out: dict[str, str]
    """Task id to why it is in no comparison."""
    unpaired: tuple[str, ...]
    """Models and arms of one run that have no counterpart in the other."""
    cells: tuple[Cell, ...]
    same_replies: int
    """Trials of both runs with the same paid reply."""
    verdicts: tuple[VerdictChange, ...]


def compare_runs(a: RunStore, b: RunStore) -> RunComparison:
    """B against A. Raises UsageError where they have no task or no arm in common."""
    runs, trials = (a.run(), b.run()), (a.load(), b.load())
    left_out = _left_out(*runs)
    shared = set(runs[0].config.tasks) & set(runs[1].config.tasks)
    named = f"{runs[0].run_id} and {runs[1].run_id}"
    if not shared - set(left_out):
        why = "; ".join(f"{task}: {reason}" for task, reason in left_out.items())
        raise UsageError(f"{named}: no task can be compared: {why or 'they have none in common'}")
    kept = shared - set(left_out)
    sides = [_Scored(run, found, kept) for run, found in zip(runs, trials, strict=True)]
    pairs, unpaired = _pairs(runs[0].config, runs[1].config)
    if not pairs:
        raise UsageError(f"{named} have no arm of one model in common")
    same = _same_replies(*trials)
    return RunComparison(
        a=_side(a, runs[0]),
        b=_side(b, runs[1]),
        changes=tuple(_changes(*runs)),
        left_out=left_out,
        unpaired=tuple(unpaired),
        cells=_adjusted(list(_cells(sides[0], sides[1], pairs)), {run.config.metric for run in runs}),
        same_replies=len(same),
        verdicts=tuple(_verdicts(same)),
    )


def _side(store: RunStore, run: RunRecord) -> Side:
    return Side(
        run=run.run_id,
        created=run.created,
        regraded_from=run.regraded_from,
        metric=run.config.metric,
        comparisons=headline(store).rows,
    )


def _left_out(a: RunRecord, b: RunRecord) -> dict[str, str]:
    """Tasks of both runs that cannot be compared."""
    found = {}
    for task in a.config.tasks:
        if task not in b.config.tasks:
            continue
        if a.lock.tasks.get(task) != b.lock.tasks.get(task):
            found[task] = "the task changed"
        elif task in a.lock.leaked or task in b.lock.leaked:
            found[task] = "a skill repeats its reference"
    return found


def _changes(a: RunRecord, b: RunRecord) -> Iterable[Change]:
    """What differs: models, skills, tasks, settings, prompts, grader and machine."""
    ours, theirs = _facts(a), _facts(b)
    for what in dict.fromkeys((*ours, *theirs)):
        old, new = ours.get(what, _ABSENT), theirs.get(what, _ABSENT)
        if old != new:
            yield Change(what=what, a=old, b=new)
    only = [[task for task in x.config.tasks if task not in y.config.tasks] for x, y in ((a, b), (b, a))]
    if any(only):
        ours_only, theirs_only = (", ".join(tasks) or _ABSENT for tasks in only)
        yield Change(what="tasks of one run", a=ours_only, b=theirs_only)
    for what, in_a, in_b in (
        ("task", a.lock.tasks, b.lock.tasks),
        ("prompt", a.lock.prompts, b.lock.prompts),
    ):
        asked = [name for name in in_a if name in in_b]
        if differ := sum(in_a[name] != in_b[name] for name in asked):
            yield Change(what=f"{what}s", a=f"{len(asked)} in both", b=f"{differ} of them changed")


def _facts(run: RunRecord) -> dict[str, str]:
    """What a run was made with, in words; digests by their first 8 digits."""
    config, lock = run.config, run.lock
    models = (f"{m.name} at {m.base_url}" if m.base_url else m.name for m in config.models)
    facts: dict[str, object] = {"models": ", ".join(models)}
    facts |= {f"skill {name}": digest[:8] for name, digest in lock.skills.items()}
    settings = config.model_dump(include=set(RunSettings.model_fields))
    facts |= settings.pop("sampling") | settings
    facts |= {"grader": lock.grader_version, "image": lock.image and lock.image[:19]}
    facts |= {f"machine {name}": value for name, value in lock.machine.model_dump().items()}
    return {k.replace("_", " "): _ABSENT if v is None else str(v) for k, v in facts.items()}


class _Scored:
    """The scores of one run on the tasks that are compared."""

    def __init__(self, run: RunRecord, trials: Sequence[TrialRecord], tasks: Set[str]) -> None:
        self.run, self.scored, self._tasks = run, score_run(run, trials), tasks
        self.labels = arm_labels(run)
        self.control = next((arm.id for arm in run.config.arms if arm.kind == "without_skill"), None)
        answered = {reply.model_label for t in trials for turn in t.turns for reply in turn.replies}
        self._answered = sorted(answered) if len(run.config.models) == 1 else []

    def of(self, model: str, arm: str) -> list[metrics.Score]:
        return [one for one in self.scored.scores[model, arm] if one.task in self._tasks]

    def shown(self, model: str) -> str:
        """The model's name without its provider."""
        return short_model(model, self._answered)


Pair = tuple[str, str, Arm, Arm]
"""Model of A, model of B, arm of A, arm of B."""


def _matched(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, str]]:
    """Equal names; a single other name on each side are a pair too."""
    pairs = [(name, name) for name in a if name in b]
    left = [name for name in a if name not in b], [name for name in b if name not in a]
    return pairs + (list(zip(*left, strict=True)) if len(left[0]) == len(left[1]) == 1 else [])


def _pairs(a: RunConfig, b: RunConfig) -> tuple[list[Pair], list[str]]:
    """Models and arms to compare, and those of one run alone."""
    models = _matched([m.name for m in a.models], [m.name for m in b.models])
    arms: list[tuple[Arm, Arm]] = []
    for kind in dict.fromkeys(arm.kind for arm in a.arms):
        ours, theirs = ({arm.id: arm for arm in run.arms if arm.kind == kind} for run in (a, b))
        arms += [(ours[x], theirs[y]) for x, y in _matched(list(ours), list(theirs))]
    unpaired = []
    for index, (which, run) in enumerate((("A", a), ("B", b))):
        known = {pair[index] for pair in models} | {pair[index].id for pair in arms}
        names = [m.name for m in run.models] + [arm.id for arm in run.arms]
        unpaired += [f"{name} (only in {which})" for name in names if name not in known]
    return [(x, y, arm, other) for x, y in models for arm, other in arms], unpaired


def _cells(a: _Scored, b: _Scored, pairs: Sequence[Pair]) -> Iterable[Cell]:
    """One of levels for every pair, and one of lifts where both runs have an arm without a skill."""
    emulated = a.scored.emulated or b.scored.emulated
    shown = [one for one in metrics.metrics_for(1, emulated=emulated) if one.name in _COMPARED]
    for model_a, model_b, arm_a, arm_b in pairs:
        scores = a.of(model_a, arm_a.id), b.of(model_b, arm_b.id)
        named = {
            "model_a": a.shown(model_a),
            "model_b": b.shown(model_b),
            "label_a": a.labels[arm_a.id],
            "label_b": b.labels[arm_b.id],
            "trials_a": len(scores[0]),
            "trials_b": len(scores[1]),
        }
        levels = [_row(a, b, m, m.lift(scores[1], scores[0], 1 - ALPHA)) for m in shown]
        yield Cell.model_validate(named | {"what": "level", "rows": levels})
        if arm_a.kind == "with_skill" and a.control and b.control:
            without = a.of(model_a, a.control), b.of(model_b, b.control)
            lifts = [_row(a, b, m, _lift_of_lifts(m, scores, without)) for m in shown]
            yield Cell.model_validate(named | {"what": "lift", "rows": lifts})


def _lift_of_lifts(
    metric: metrics.Metric,
    scores: tuple[metrics.Scores, metrics.Scores],
    without: tuple[metrics.Scores, metrics.Scores],
) -> stats.Lift:
    """The lift in B minus the lift in A, paired by task: each task's lift is one observation."""
    a, b = (metric.lift(scores[run], without[run], tested=False).per_task for run in (0, 1))
    seen = [stats.Observation(family, task, "control", value) for family, task, value in a]
    seen += [stats.Observation(family, task, "treatment", value) for family, task, value in b]
    return stats.paired_lift(seen, 1 - ALPHA)


def _row(a: _Scored, b: _Scored, metric: metrics.Metric, lift: stats.Lift) -> PairedRow:
    gaps = {name: side.scored.gap(metric.name) for name, side in (("A", a), ("B", b))}
    reasons = [f"in {name}: {gap.reason}" for name, gap in gaps.items() if gap is not None]
    if not reasons and not lift.n_families:
        reasons = ["no task has a scored trial in both runs"]
    if reasons:
        lift = stats.paired_lift([])
    made = metric.facts(lift) | {
        "p_value": lift.p_value,
        "p_holm": None,
        "not_measured": "; ".join(reasons) or None,
        "outcome": "not measured" if reasons else "within noise",
    }
    return PairedRow.model_validate(made)


def _adjusted(cells: Sequence[Cell], primary: set[Metric]) -> tuple[Cell, ...]:
    """With Holm-adjusted p values, over the rows of primary metrics and over all others, and outcomes."""
    rows = [row for cell in cells for row in cell.rows]
    p_holm: dict[int, float | None] = {}
    for wanted in (True, False):
        tested = [row for row in rows if (row.metric in primary) is wanted and not row.not_measured]
        adjusted = stats.holm([row.p_value for row in tested])
        p_holm |= {id(row): p for row, p in zip(tested, adjusted, strict=True)}

    def judged(row: PairedRow) -> PairedRow:
        p = p_holm.get(id(row))
        outcome: Outcome = row.outcome
        if p is not None and p <= ALPHA and row.lift is not None:
            outcome = "better" if row.lift > (0.0 if row.unit == "share" else 1.0) else "worse"
        return row.model_copy(update={"p_holm": p, "outcome": outcome})

    return tuple(cell.model_copy(update={"rows": tuple(map(judged, cell.rows))}) for cell in cells)


def _same_replies(
    a: Sequence[TrialRecord], b: Sequence[TrialRecord]
) -> list[tuple[TrialRecord, TrialRecord]]:
    """Trials of both runs that were paid for once: the same prompt, model, sampling and repeat."""
    before = {(trial.key, trial.generation_key): trial for trial in a}
    return [(old, trial) for trial in b if (old := before.get((trial.key, trial.generation_key))) is not None]


def _verdicts(same: Sequence[tuple[TrialRecord, TrialRecord]]) -> Iterable[VerdictChange]:
    """Verdicts before and after, the most frequent first."""
    found: dict[tuple[str, str], list[str]] = {}
    for old, new in same:
        found.setdefault((old.result, new.result), []).append(name_of(new.key))
    for (before, after), names in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        yield VerdictChange(a=before, b=after, trials=tuple(sorted(names)))


def name_of(key: TrialKey) -> str:
    """`task/model/arm/repeat`, as `show` takes it."""
    return f"{key.task}/{key.model}/{key.arm}/{key.repeat}"
