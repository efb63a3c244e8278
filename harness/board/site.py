"""The static site: plain HTML and JSON that open from disk, one page per cell, no script but for sorting."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.board.kept import Kept
from harness.board.pages import Pages, cell_path, make_pages, write_cells
from harness.board.runs import BoardRun, Suite
from harness.board.submission import published
from harness.board.tables import Claim, Table, claims_of, curve_of, replies_of_others, tables_of
from harness.errors import UsageError
from harness.files import write_atomically
from harness.report.experts import ExpertResult

_ALONE: Final = 8
"""Runs that one process reads."""


def build_site(
    site: Path,
    folders: Sequence[Path],
    experts: Sequence[ExpertResult] = (),
    own: Sequence[BoardRun] = (),
    suite: Suite | None = None,
) -> list[Table]:
    """Write the site; pages of earlier builds stay.

    `own`: runs of the board's owner, which raise levels. Raises UsageError for a run that is given twice or
    was graded again, a submission with a fault, and one with another run's replies.
    """
    claims = _unlike(list(_claims(site, folders, own, suite)))
    tables = tables_of(claims, experts, suite)
    pages = make_pages()
    for table in tables:
        place = site / "boards" / table.division.slug
        write_atomically(place.with_suffix(".json"), json.dumps(_json(table), indent=1) + "\n")
        write_atomically(place.with_suffix(".html"), pages.division(table, curve_of(table)))
        for claim in table.claims:
            _write_entry(site, pages, claim, table)
    write_atomically(site / "index.html", pages.index(tables))
    return tables


_Job = tuple[Kept, Sequence[BoardRun], Suite | None]
_JOB: list[_Job] = []
"""What a process that reads runs was started with."""


def _begin(job: _Job) -> None:
    _JOB[:] = [job]
    gc.disable()  # records hold no cycles, and are many


def _read(folder: Path, job: _Job | None = None) -> list[Claim]:
    """The claims of one run, whose cells are written."""
    kept, own, suite = job or _JOB[0]
    stamp = kept.stamp(folder)
    if (claims := kept.read(folder, stamp)) is not None:
        return claims
    one = published(folder)
    if one.run.regraded_from is not None:
        raise UsageError(f"{folder} was graded again: give it with --own, beside {one.run.regraded_from}")
    claims = claims_of(one, own, suite)
    write_cells(kept.site, one, [claim.entry for claim in claims], own)
    kept.write(folder, stamp, claims)
    return claims


def _claims(
    site: Path, folders: Sequence[Path], own: Sequence[BoardRun], suite: Suite | None
) -> Iterator[Claim]:
    job, workers = (Kept.of(site, own, suite), own, suite), min(os.cpu_count() or 1, len(folders) // _ALONE)
    if workers < 2:
        for folder in folders:
            yield from _read(folder, job)
        return
    fork = multiprocessing.get_context("fork")  # `own` is not copied
    with ProcessPoolExecutor(workers, fork, _begin, (job,)) as pool:
        for claims in pool.map(_read, folders):
            yield from claims


def _unlike(claims: list[Claim]) -> list[Claim]:
    """Entries with replies of an earlier run are not ranked. Raises UsageError for a submission with them."""
    if len({claim.entry.id for claim in claims}) < len(claims):
        raise UsageError("a run is given twice")
    copies = {claim.entry.id: why for claim, why in replies_of_others(claims)}
    for claim in claims:
        if claim.submitted and claim.entry.id in copies:
            raise UsageError(f"{claim.entry.run_id}: {copies[claim.entry.id]}")
    return [_unranked(claim, copies.get(claim.entry.id)) for claim in claims]


def _unranked(claim: Claim, why: str | None) -> Claim:
    if why is None:
        return claim
    reasons = (*claim.entry.not_ranked, why)
    rows = tuple(row.model_copy(update={"not_ranked": reasons}) for row in claim.kernels)
    return replace(claim, entry=claim.entry.model_copy(update={"not_ranked": reasons}), kernels=rows)


def _write_entry(site: Path, pages: Pages, claim: Claim, table: Table) -> None:
    entry, rank = claim.entry, table.ranking.ranks.get(claim.entry.id)
    place = site / "entries" / entry.id
    cells = {task: cell_path(entry, task) for task in claim.tasks}
    data = entry.model_dump(mode="json") | {"rank": rank and [rank.first, rank.last], "cells": cells}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".json").write_text(json.dumps(data) + "\n")
    place.with_suffix(".html").write_text(pages.entry(claim, rank), encoding="utf-8", errors="replace")


def _json(table: Table) -> dict[str, Any]:
    """Everything of a table; comparisons and cells stand in the JSON of each entry."""
    rows = []
    for entry in table.entries:
        rank = table.ranking.ranks.get(entry.id)
        row = entry.model_dump(mode="json", exclude={"division", "comparison"})
        rows.append(row | {"rank": rank and [rank.first, rank.last], "page": f"entries/{entry.id}.json"})
    return {
        "division": table.division.model_dump(),
        "ranking": table.ranking.why,
        "entries": rows,
        "kernels": [row.model_dump(mode="json") for row in table.kernels],
    }
