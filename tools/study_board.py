"""Builds a board from the recorded studies and the figures of the experts: `make board`."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.board.runs import read_run
from harness.board.site import build_site
from harness.board.tables import Table
from harness.report.figures import plural
from harness.suite.catalogue import select_tasks
from tools.status import read_results

ROOT = Path(__file__).resolve().parent.parent


def build(site: Path, studies: Path = ROOT / "studies", results: Path = ROOT / "results") -> list[Table]:
    """Runs are the folders studies/*/run* with trials; those graded again raise the level of theirs."""
    places = sorted(path.parent for path in studies.glob("*/run*/run.json"))
    found = [read_run(place) for place in places if (place / "trials.jsonl").exists()]
    asked = [one.store.folder for one in found if one.run.regraded_from is None]
    known = {one.run.run_id for one in found}
    lone = [one.store.folder for one in found if one.run.regraded_from and one.run.regraded_from not in known]
    own = [one for one in found if one.run.regraded_from in known]
    suite = {one.task.id: (one.task.digest, one.task.family) for one in select_tasks([])}
    return build_site(site, [*asked, *lone], read_results(results), own, suite)


def main() -> None:
    site = Path(sys.argv[1])
    tables = build(site)
    for table in tables:
        entries, kernels = plural(len(table.entries), "entry"), plural(len(table.kernels), "kernel")
        print(f"{table.division.label}: {entries}, {kernels}")
    print(site / "index.html")


if __name__ == "__main__":
    main()
