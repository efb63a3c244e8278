"""Submissions to a board: folders of runs with their digests, checked alike by who submits and by the board.

    <folder>/<run id>/manifest.json        path -> SHA-256 of every other file
                      run.json trials.jsonl trials/...   as in a run folder
    <folder>/delisted.json                 run id -> why, written by the board

Nothing in a submission is executed or unpacked: files are read up to a limit, and links are refused.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.board.entries import AUDIT, DELISTED, LEAST_REPEATS, BoardRun, delisted, read_run
from harness.errors import UsageError
from harness.files import unsafe_path, write_atomically
from harness.outcome import Verdict
from harness.records import Project, TrialRecord
from harness.study.plan import plan
from harness.suite.catalogue import read_project
from harness.text import redact

MANIFEST: Final = "manifest.json"
MOST_BYTES: Final = 512 << 20
MOST_FILE_BYTES: Final = 64 << 20
_OF_A_RUN: Final = ("run.json", "trials.jsonl", AUDIT)
_OF_A_TRIAL: Final = ("prompt*.json", "reply*.json", "build.log")


def pack(one: BoardRun, out: Path) -> Path:
    """Copy what a submission needs. Raises UsageError with everything that a board would refuse."""
    faults = list(faults_of(one))
    if faults:
        raise UsageError("the board would refuse this run:\n  " + "\n  ".join(faults))
    source, target = one.store.folder, out / one.run.run_id
    if target.exists():
        raise UsageError(f"{target} exists already; remove it to pack the run again")
    for path in _packed(source):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    write_atomically(target / MANIFEST, json.dumps(_digests(target), indent=1) + "\n")
    return target


def _packed(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        wanted = any(path.match(name) for name in _OF_A_TRIAL) or "project" in inside.parts
        if path.is_file() and (inside.as_posix() in _OF_A_RUN or (inside.parts[0] == "trials" and wanted)):
            yield path


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def read_submission(folder: Path) -> BoardRun:
    """A submission whose files are those of its manifest. Raises UsageError with the first fault."""
    try:
        stated = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / MANIFEST} cannot be read: {error}") from None
    size = 0
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        why = unsafe_path(inside) or ("is a link" if path.is_symlink() else None)
        if why is None and not path.is_symlink() and path.is_file():
            size += path.stat().st_size
            why = "is larger than 64 MiB" if path.stat().st_size > MOST_FILE_BYTES else None
        if why is not None:
            raise UsageError(f"{folder}: {inside!r} {why}")
        if size > MOST_BYTES:
            raise UsageError(f"{folder} holds more than {MOST_BYTES >> 20} MiB")
    found = _digests(folder)
    if found != stated:
        changed = sorted(set(found.items()) ^ set(stated.items() if isinstance(stated, dict) else ()))
        raise UsageError(f"{folder}: not the files of {MANIFEST}: {', '.join(dict(changed)) or 'no mapping'}")
    one = read_run(folder)
    if one.run.run_id != folder.name:
        raise UsageError(f"{folder} holds run {one.run.run_id}: the folder must have its name")
    return one


def faults_of(one: BoardRun) -> Iterator[str]:
    """What a board refuses, whatever the figures: coverage, repetition, missing projects, secrets."""
    run, planned = one.run, set(plan(one.run.config))
    if run.regraded_from is not None:
        yield f"it is a regraded run; submit {run.regraded_from}, and give this one beside it"
    if run.config.repeats < LEAST_REPEATS:
        yield f"{run.config.repeats} replies per task; at least {LEAST_REPEATS}"
    keys = Counter(trial.key for trial in one.trials)
    lines = sum(1 for line in (one.store.folder / "trials.jsonl").read_bytes().splitlines() if line.strip())
    if lines != len(keys):
        yield f"trials.jsonl has {lines} lines for {len(keys)} trials: none may be dropped or repeated"
    if missing := planned - keys.keys():
        yield f"{len(missing)} of {len(planned)} planned trials are missing"
    if extra := keys.keys() - planned:
        yield f"{len(extra)} trials are not in the plan"
    lost = sum(trial.infra for trial in one.trials)
    if lost:
        yield f"{lost} trials are lost to infrastructure; the same command tries them again"
    for trial in one.trials:
        yield from _faults_of_trial(one, trial)
    for path in _packed(one.store.folder):
        text = path.read_text(errors="replace")
        if redact(text) != text:
            yield f"{path.relative_to(one.store.folder)} holds what looks like a key or token"


def _faults_of_trial(one: BoardRun, trial: TrialRecord) -> Iterator[str]:
    """The stored project is the one that was graded."""
    turn, grade = trial.project_turn, trial.grade
    if turn is None or grade is None or trial.turns[turn].project is None:
        return
    name = trial.key.folder
    try:
        stored: Project | None = read_project(one.store.turn_folder(trial.key, turn) / "project")
    except UsageError:
        stored = None
    if stored is None:
        yield f"{name}: its project is not there"
    elif stored.digest != trial.turns[turn].project:
        yield f"{name}: the stored project is not the one that was graded"
    if grade.task_digest != one.run.lock.tasks.get(trial.key.task):
        yield f"{name}: graded on another version of the task than the run says"


def contradictions(one: BoardRun, again: BoardRun) -> Iterator[str]:
    """Where a regraded run disagrees with a claim: verdicts, and speedups whose intervals do not meet."""
    claimed = {trial.key: trial for trial in one.trials}
    for trial in again.trials:
        old = claimed.get(trial.key)
        if old is None or old.grade is None or trial.grade is None:
            continue
        unmeasured = Verdict.NOT_MEASURED in (old.verdict, trial.verdict)
        if old.verdict is not trial.verdict and not unmeasured:
            yield f"{trial.key.folder}: claimed {old.verdict}, graded again {trial.verdict}"
        elif not _meet(old, trial):
            yield f"{trial.key.folder}: the speedups' intervals do not meet"


def _meet(old: TrialRecord, new: TrialRecord) -> bool:
    """Whether the intervals of two speedups overlap; where one has none there is nothing to compare."""
    ratios = [
        t.grade.timing.speedup for t in (old, new) if t.grade is not None and t.grade.timing is not None
    ]
    if len(ratios) < 2 or any(ratio.low is None or ratio.high is None for ratio in ratios):
        return True
    (a, b) = ratios
    return (a.low or 0.0) <= (b.high or 0.0) and (b.low or 0.0) <= (a.high or 0.0)


def delist(folder: Path, reasons: dict[str, str]) -> None:
    """Add reasons to delisted.json; what is there stays."""
    write_atomically(folder / DELISTED, json.dumps(delisted(folder) | reasons, indent=1) + "\n")


def duplicates(runs: Sequence[BoardRun]) -> Iterator[str]:
    """Replies that stand in two runs which are no regrades of each other."""
    owner: dict[str, str] = {}
    for one in runs:
        if one.run.regraded_from is not None:
            continue
        for trial in one.trials:
            text = "".join(reply.text for turn in trial.turns for reply in turn.replies)
            seen = hashlib.sha256(f"{trial.generation_key}\0{text}".encode()).hexdigest()
            first = owner.setdefault(seen, one.run.run_id)
            if text and first != one.run.run_id:
                yield f"{one.run.run_id}: its reply {trial.key.folder} is that of {first}"
                break
