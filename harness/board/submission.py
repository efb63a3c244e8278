"""Submissions to a board: folders of runs with their digests, checked alike by who submits and by the board.

    <folder>/<run id>/manifest.json        path -> SHA-256 of every other file
                      run.json trials.jsonl trials/...   as in a run folder
    <folder>/delisted.json                 run id -> why, written by the board
             <run id>.audit.yaml           what the board's readers say

Nothing in a submission is executed or unpacked: files are read up to a limit, and links are refused.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.board.entries import LEAST_REPEATS
from harness.board.runs import BoardRun, Suite, foreign_tasks, read_run, refuse_links
from harness.errors import UsageError
from harness.files import unsafe_path, write_atomically
from harness.records import Project, Request, Skill, TrialRecord
from harness.student.answer import parse_reply
from harness.study.plan import generation_key, plan, request_for
from harness.suite.catalogue import LoadedTask, read_project
from harness.text import redact

MANIFEST: Final = "manifest.json"
MOST_BYTES: Final = 512 << 20
MOST_FILE_BYTES: Final = 64 << 20
_OF_A_RUN: Final = ("run.json", "trials.jsonl")
_OF_A_TRIAL: Final = ("prompt*.json", "reply*.json", "build.log")


@dataclass(frozen=True)
class Shipped:
    """The board's own tasks, and skills by digest: what claims are compared with."""

    tasks: Mapping[str, LoadedTask]
    skills: Mapping[str, Skill]

    @property
    def suite(self) -> Suite:
        return {name: (one.task.digest, one.task.family) for name, one in self.tasks.items()}

    def unknown_skills(self, one: BoardRun) -> set[str]:
        """Digests of a run's skills that are not here, so that prompts with them cannot be made again."""
        return {digest for arm in one.run.config.arms for digest in arm.skills} - self.skills.keys()


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
    write_atomically(target / MANIFEST, json.dumps(file_digests(target), indent=1) + "\n")
    return target


def _packed(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        wanted = any(path.match(name) for name in _OF_A_TRIAL) or "project" in inside.parts
        if path.is_file() and (inside.as_posix() in _OF_A_RUN or (inside.parts[0] == "trials" and wanted)):
            yield path


def file_digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def refuse_unsafe(folder: Path) -> None:
    """Raises UsageError for links, names that lead elsewhere, and too many bytes."""
    refuse_links(folder)
    size = 0
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        size += path.stat().st_size if path.is_file() else 0
        why = unsafe_path(inside)
        if why is None and path.stat().st_size > MOST_FILE_BYTES:
            why = "is larger than 64 MiB"
        if why is not None:
            raise UsageError(f"{folder}: {inside!r} {why}")
        if size > MOST_BYTES:
            raise UsageError(f"{folder} holds more than {MOST_BYTES >> 20} MiB")


def read_submission(folder: Path) -> BoardRun:
    """A submission whose files are those of its manifest. Raises UsageError with the first fault."""
    refuse_unsafe(folder)
    try:
        stated = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{folder / MANIFEST} cannot be read: {error}") from None
    found = file_digests(folder)
    if found != stated:
        changed = sorted(set(found.items()) ^ _pairs(stated))
        raise UsageError(f"{folder}: not the files of {MANIFEST}: {', '.join(dict(changed)) or 'no mapping'}")
    one = read_run(folder)
    if one.run.run_id != folder.name:
        raise UsageError(f"{folder} holds run {one.run.run_id}: the folder must have its name")
    return one


def _pairs(stated: object) -> set[tuple[str, str]]:
    return {(k, v) for k, v in stated.items() if isinstance(v, str)} if isinstance(stated, dict) else set()


def has_submissions(folder: Path) -> bool:
    """Whether it stands among submissions, and so is one."""
    return any(folder.absolute().parent.glob(f"*/{MANIFEST}"))


def published(folder: Path) -> BoardRun:
    """A run for the site. A submission, which any folder beside one is, is checked as by `board check`.

    Raises UsageError with its faults.
    """
    if not has_submissions(folder):
        return read_run(folder)
    one = read_submission(folder)
    if faults := list(faults_of(one)):
        raise UsageError(f"{folder} is refused:\n  " + "\n  ".join(faults))
    return one


def faults_of(one: BoardRun, shipped: Shipped | None = None) -> Iterator[str]:
    """What a board refuses, whatever the figures: coverage, repetition, missing projects, secrets; and, where
    the board's own tasks are given, what is not of them."""
    run, planned = one.run, set(plan(one.run.config))
    if run.regraded_from is not None:
        yield f"it is a regraded run; submit {run.regraded_from}, and give this one beside it"
    if run.config.repeats < LEAST_REPEATS:
        yield f"{run.config.repeats} replies per task; at least {LEAST_REPEATS}"
    keys = {trial.key for trial in one.trials}
    if one.repeated or one.torn:
        lines = len(keys) + one.repeated + one.torn
        yield f"trials.jsonl has {lines} lines for {len(keys)} trials: none may be dropped or repeated"
    if missing := planned - keys:
        yield f"{len(missing)} of {len(planned)} planned trials are missing"
    if extra := keys - planned:
        yield f"{len(extra)} trials are not in the plan"
    lost = sum(trial.infra for trial in one.trials)
    if lost:
        yield f"{lost} trials are lost to infrastructure; the same command tries them again"
    for trial in one.trials:
        yield from _faults_of_trial(one, trial)
    yield from _faults_of_prompts(one, shipped)
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
    answered = parse_reply(trial.turns[turn].reply)
    if not isinstance(answered, Project) or answered.digest != trial.turns[turn].project:
        yield f"{name}: its reply does not hold the project that was graded"
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


def _faults_of_prompts(one: BoardRun, shipped: Shipped | None) -> Iterator[str]:
    """Stored prompts are those that were paid for, and those that the board would send."""
    run = one.run
    if shipped is not None and (foreign := foreign_tasks(run, shipped.suite)):
        yield f"not the board's version of {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}"
        shipped = None
    for trial in one.trials:
        if not trial.turns:
            continue
        try:
            request = one.store.request(trial.key)
        except UsageError:
            yield f"{trial.key.folder}: its prompt is not there"
            continue
        if generation_key(trial.key, request) != trial.generation_key:
            yield f"{trial.key.folder}: its prompt is not the one that was paid for"
        elif request.prompt_digest != run.lock.prompts.get(f"{trial.key.task}/{trial.key.arm}"):
            yield f"{trial.key.folder}: its prompt is not that of the run"
        elif shipped is not None and not _as_asked(one, trial, request, shipped):
            yield f"{trial.key.folder}: the board would send another prompt"


def _as_asked(one: BoardRun, trial: TrialRecord, request: Request, shipped: Shipped) -> bool:
    """Whether it is the board's prompt; so it is taken to be where a skill is not known here."""
    arm = next((arm for arm in one.run.config.arms if arm.id == trial.key.arm), None)
    if arm is None or not shipped.skills.keys() >= set(arm.skills):
        return arm is not None
    asked = request_for(trial.key, one.run.config, shipped.tasks, shipped.skills)
    return (asked.prompt_digest, asked.sampling) == (request.prompt_digest, request.sampling)
