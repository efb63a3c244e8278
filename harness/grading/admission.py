"""Admission rules that a task must pass to be ranked, and the file that records their results.

Rules that need no GPU use the task's workloads for the CPU, in the dtypes of both targets where PyTorch
supports them. A rule that could not be tried is `not_measured` with a reason, never `holds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.grading.grade import Grader
from harness.judge.problem import Problem
from harness.judge.trivial_answers import passing, reference_fails
from harness.outcome import Verdict
from harness.records import Admission, Grade, Project, Record, Rule, Target, Task
from harness.records.grade import GRADER_VERSION
from harness.records.reasons import reason_of
from harness.records.task import RuleName
from harness.suite.catalogue import LoadedTask, expert_project
from harness.suite.mutants import mutants, sample, sources
from harness.suite.sizes import HOST_BYTES, gib, sizes

FILE_NAME = "ADMISSION.json"
RULES: tuple[RuleName, ...] = get_args(RuleName)
LEAST_CAUGHT = 0.95
"""Share of an expert's mutants that the check must catch."""
_DEVICE_BYTES = 20 << 30  # a quarter of an H100's 80 GB
_DRAWS = 8
"""Input draws for the reference of a timed workload: 96 % find a failure on a third of them."""
_WORDS = {"holds": "yes", "fails": "NO", "not_measured": "-"}
_SAID_CHARS = 600


def admit(loaded: LoadedTask, grader: Grader, most_mutants: int) -> Admission:
    """Try every rule on one task, with at most `most_mutants` mutated experts. Raises InfraError."""
    task = loaded.task
    project = expert_project(task)
    grade = None if project is None else grader.grade(project, loaded)
    rules = [_sources(loaded), sizes_rule(loaded), *_without_projects(loaded), _expert(grade)]
    rules += [_mutants(loaded, project, grade, grader, most_mutants), _light(grade)]
    return Admission(
        task=task.id,
        version=task.version,
        task_digest=task.digest,
        expert=None if project is None else project.digest,
        target=grader.target,
        grader_version=GRADER_VERSION,
        rules=tuple(rules),
    )


def _rule(name: RuleName, problems: list[str], said: str = "") -> Rule:
    """`fails` where there are problems."""
    said = "; ".join(problems) or said
    return Rule(name=name, status="fails" if problems else "holds", said=said[:_SAID_CHARS])


def _not_measured(name: RuleName, why: str) -> Rule:
    return Rule(name=name, status="not_measured", said=why[:_SAID_CHARS])


def _sources(loaded: LoadedTask) -> Rule:
    """Timed sizes come from real models, which are named."""
    missing = [w.name for w in loaded.task.workloads if w.timed and not w.source]
    return _rule("sources", [f"workload {name} is timed and has no `source`" for name in missing])


def sizes_rule(loaded: LoadedTask) -> Rule:
    """Every workload fits in memory on the CPU target and on an H100 with 80 GB."""
    limits: dict[Target, int] = {"cpu": HOST_BYTES, "cuda": _DEVICE_BYTES}
    found = [(target, size) for target in loaded.task.dtypes for size in sizes(loaded.task, target)]
    over = [
        f"{size.label} takes {gib(size.judged_bytes)} on {target}, which allows {gib(limits[target])}"
        for target, size in found
        if size.judged_bytes > limits[target]
    ]
    largest = {target: max(size.judged_bytes for t, size in found if t == target) for target, _ in found}
    return _rule("sizes", over, ", ".join(f"{t} at most {gib(n)}" for t, n in largest.items()))


def _problems(loaded: LoadedTask) -> Iterator[Problem]:
    """Timed CPU workloads in the dtypes of both targets, then the others in those of the CPU."""
    task = loaded.task
    every = dict.fromkeys([*task.dtypes.get("cpu", ()), *task.dtypes.get("cuda", ())])
    for workload in sorted(task.workloads_for("cpu"), key=lambda one: not one.timed):
        for dtype in every if workload.timed else task.dtypes.get("cpu", ()):
            yield Problem(loaded, workload, dtype)


def _without_projects(loaded: LoadedTask) -> list[Rule]:
    """The reference passes; on timed workloads trivial answers, ignored inputs and coarse inputs fail."""
    wrong: dict[RuleName, list[str]] = {"reference": [], "trivial": [], "inputs": [], "precision": []}
    tried = dict.fromkeys(wrong, 0)
    unknown: list[str] = []
    for problem in _problems(loaded):
        draws = _DRAWS if problem.workload.timed else 1
        try:
            said = next(filter(None, (reference_fails(problem) for _ in range(draws))), None)
            passed = passing(problem) if problem.workload.timed else []
        except RuntimeError as error:  # what PyTorch raises for an op without that dtype
            unknown.append(f"{problem.label}: PyTorch here says {str(error).splitlines()[0][:120]}")
            continue
        wrong["reference"] += [] if said is None else [said]
        for what in passed:
            wrong[_rule_of(what)].append(f"{problem.label}: {what} passes")
        tried = {name: n + (name == "reference" or problem.workload.timed) for name, n in tried.items()}
    return [_tried(name, wrong[name], tried[name], unknown) for name in wrong]


def _rule_of(what: str) -> RuleName:
    if what.startswith("ignores"):
        return "inputs"
    return "precision" if what.startswith("inputs in") else "trivial"


def _tried(name: RuleName, wrong: list[str], count: int, unknown: list[str]) -> Rule:
    if count == 0 and not wrong:
        return _not_measured(name, "; ".join(unknown) or "no workload for the CPU")
    left_out = f"; {len(unknown)} not tried: {unknown[0]}" if unknown else ""
    draws = f", timed ones on {_DRAWS} draws" if name == "reference" else ""
    return _rule(name, wrong, f"{count} problems{draws}{left_out}")


def _expert(grade: Grade | None) -> Rule:
    if grade is None:
        return _rule("expert", ["there is no project in kernels_ref"])
    if grade.verdict is Verdict.NOT_MEASURED:
        return _not_measured("expert", f"built; {grade.finding.message}")
    wrong = [] if grade.verdict is Verdict.CORRECT else [f"{grade.verdict}: {grade.finding.message}"]
    cases = 0 if grade.check is None else len(grade.check.workloads)
    return _rule("expert", wrong, f"correct in {cases} cases")


def _mutants(
    loaded: LoadedTask, project: Project | None, grade: Grade | None, grader: Grader, most: int
) -> Rule:
    """The check catches off-by-one mutants of the expert."""
    if project is None or grade is None or grade.verdict is not Verdict.CORRECT:
        return _not_measured("mutants", "needs an expert that is correct here")
    if most == 0:
        return _not_measured("mutants", "not asked for")
    if grader.target != "cpu":
        return _not_measured("mutants", "mutants are made of the sources for the CPU")
    every = mutants(project, sources(project))
    caught: list[str] = []
    survived: list[str] = []
    for mutant in sample(every, most, loaded.task.digest):
        tried_grade = grader.grade(mutant.project, loaded)
        if tried_grade.compiled:
            (survived if tried_grade.verdict is Verdict.CORRECT else caught).append(mutant.label)
    tried = len(caught) + len(survived)
    if tried == 0:
        return _not_measured("mutants", f"none of {len(every)} mutants could be built")
    share = len(caught) / tried
    said = f"{len(caught)} of {tried} caught ({len(every)} possible)"
    named = [f"survives: {label}" for label in survived]
    return _rule("mutants", [said, *named] if share < LEAST_CAUGHT else [], "; ".join([said, *named]))


def _light(grade: Grade | None) -> Rule:
    """No expert is above the speed of light; one that is shows that the task counts its work wrongly."""
    timed = [] if grade is None or grade.timing is None else grade.timing.workloads
    shares = {f"{w.workload} {w.dtype}": w.speed_of_light for w in timed if w.speed_of_light is not None}
    if not shares:
        return _not_measured("light", "needs a timed grade on a GPU that is in the table of boards")
    over = [f"{name} is at {share:.2f} of the speed of light" for name, share in shares.items() if share > 1]
    return _rule("light", over, f"at most {max(shares.values()):.2f}")


class Contents(Record):
    """ADMISSION.json."""

    schema_version: Literal[1] = 1
    entries: tuple[Admission, ...] = ()


class Admitted:
    """The record file, replaced after every task."""

    def __init__(self, path: Path) -> None:
        """Read the file; empty where there is none. Raises UsageError for a broken one."""
        self.path = path
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else "{}"
            entries = Contents.model_validate_json(text).entries
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(
                f"{path} is no record of admissions: {reason_of(error)}; move it away"
            ) from error
        self._entries = {entry.task: entry for entry in entries}

    @property
    def entries(self) -> tuple[Admission, ...]:
        return tuple(self._entries[name] for name in sorted(self._entries))

    def entry(self, task: Task, expert: Project | None) -> Admission | None:
        """The entry of exactly these files; None where they have changed."""
        found = self._entries.get(task.id)
        digests = (task.digest, None if expert is None else expert.digest)
        return found if found is not None and (found.task_digest, found.expert) == digests else None

    def add(self, entry: Admission) -> None:
        """Add or replace an entry and write the file."""
        self._entries[entry.task] = entry
        self._write()

    def _write(self) -> None:
        contents = Contents(entries=self.entries)
        write_atomically(self.path, contents.model_dump_json(indent=1) + "\n")

    def keep(self, tasks: Sequence[Task]) -> None:
        """Drop entries of other tasks."""
        names = {task.id for task in tasks}
        if not self._entries.keys() <= names:
            self._entries = {name: entry for name, entry in self._entries.items() if name in names}
            self._write()


def cell(rule: Rule) -> str:
    if rule.name == "mutants" and rule.status == "holds":
        return rule.said.split(" caught")[0].replace(" of ", "/")
    return _WORDS[rule.status]
