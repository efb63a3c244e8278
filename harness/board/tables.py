"""Tables of the site: entries of one division in order, with ranks and the fastest kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness import stats
from harness.board.entries import Entry, entries_of
from harness.board.kernels import KernelRow, kernel_rows, kernels_of
from harness.board.ranks import Ranking, ranked, task_means
from harness.board.runs import BoardRun, Division, Suite
from harness.board.submission import MANIFEST
from harness.report.comparison_schema import ends
from harness.report.experts import ExpertResult
from harness.report.figures import plural
from harness.report.metrics import THRESHOLDS, family_means, fast_metric, metrics_for
from harness.report.schema import FastLevel

_KINDS: Final = ("gpu", "cpu", "emulated", "built")


@dataclass(frozen=True)
class Claim:
    """What tables need of one entry."""

    entry: Entry
    submitted: bool
    means: tuple[tuple[tuple[str, str], float], ...]
    """By family and task, of its division's metric."""
    fast: tuple[tuple[float, ...], ...]
    """Family means of fast_p by threshold."""
    kernels: tuple[KernelRow, ...]
    replies: tuple[str, ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """One division: its entries in order, and their ranks."""

    division: Division
    claims: tuple[Claim, ...]
    ranking: Ranking
    kernels: tuple[KernelRow, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(claim.entry for claim in self.claims)

    @property
    def groups(self) -> list[tuple[str, list[Entry]]]:
        """Entries of equal rank together; `-` are not ranked."""
        found: list[tuple[str, list[Entry]]] = []
        for entry in self.entries:
            rank = self.ranking.ranks.get(entry.id)
            text = "-" if rank is None else rank.text
            if not found or found[-1][0] != text:
                found.append((text, []))
            found[-1][1].append(entry)
        return found


def claims_of(one: BoardRun, own: Sequence[BoardRun] = (), suite: Suite | None = None) -> list[Claim]:
    """The entries of a run. `own`: runs of the board's owner."""
    metric = next(m for m in metrics_for(1) if m.name == one.division.metric)
    made = []
    for entry in entries_of(one, own, suite):
        scores = one.scores[entry.model, entry.arm]
        tasks = (row.task for row in one.summary.trials if (row.model, row.arm) == (entry.model, entry.arm))
        made.append(
            Claim(
                entry=entry,
                submitted=(one.store.folder / MANIFEST).exists(),
                means=tuple(task_means(metric.values(scores)).items()),
                fast=tuple(tuple(family_means(fast_metric(p).values(scores))) for p in THRESHOLDS),
                kernels=kernels_of(one, entry),
                replies=tuple(one.replies(entry.model, entry.arm)),
                tasks=tuple(dict.fromkeys(tasks)),
            )
        )
    return made


def replies_of_others(claims: Sequence[Claim]) -> Iterator[tuple[Claim, str]]:
    """Entries with replies that stand in an earlier run, and which run."""
    owner: dict[str, str] = {}
    for claim in claims:
        mine = claim.entry.run_id
        others = [run for reply in claim.replies if (run := owner.setdefault(reply, mine)) != mine]
        if others:
            yield claim, f"{plural(len(others), 'reply')} of {others[0]} stand in it too"


def tables_of(
    claims: Sequence[Claim], experts: Sequence[ExpertResult] = (), suite: Suite | None = None
) -> list[Table]:
    """One for each division, GPUs first, and for the experts of each device and protocol."""
    families = {task: family for task, (_, family) in (suite or {}).items()}
    families |= {row.task: row.family for claim in claims for row in claim.kernels}
    divisions = {claim.entry.division for claim in claims} | {_of_expert(one) for one in experts}

    def order(division: Division) -> tuple[bool, int, str, str]:
        return division.briefing is None, _KINDS.index(division.kind), division.device, division.slug

    return [_table(division, claims, experts, families) for division in sorted(divisions, key=order)]


def _of_expert(one: ExpertResult) -> Division:
    kind: Literal["cpu", "gpu"] = "cpu" if one.target == "cpu" else "gpu"
    named = {"kind": kind, "device": one.device, "target": one.target, "protocol": one.protocol}
    return Division.model_validate(named | {"briefing": None, "suite": ""})


def _table(
    division: Division,
    claims: Sequence[Claim],
    experts: Sequence[ExpertResult],
    families: Mapping[str, str],
) -> Table:
    own = [claim for claim in claims if claim.entry.division == division]
    ranking = ranked({one.entry.id: dict(one.means) for one in own if not one.entry.not_ranked})

    def order(claim: Claim) -> tuple[object, ...]:
        entry = claim.entry
        figure, rank = entry.figures.get(division.metric), ranking.ranks.get(entry.id)
        place = (rank.first, rank.last) if rank else (0, 0)
        unranked = entry.off, bool(entry.not_ranked)
        return *unranked, *place, -figure.value if figure else 0.0, entry.model + entry.skill

    kernels = kernel_rows(division, [row for claim in own for row in claim.kernels], experts, families)
    return Table(division, tuple(sorted(own, key=order)), ranking, tuple(kernels))


def curve_of(table: Table) -> list[tuple[str, tuple[FastLevel, ...]]]:
    """fast_p of the first two entries that were timed."""
    timed = [claim for claim in table.claims if claim.entry.fast_p and all(claim.fast)][:2]
    return [
        (
            claim.entry.skill,
            tuple(
                FastLevel(threshold=p, share=sum(means) / len(means), **ends(stats.share_interval(means)))
                for p, means in zip(THRESHOLDS, claim.fast, strict=True)
            ),
        )
        for claim in timed
    ]
