"""Whether a task may be ranked on: every rule is tried and its outcome recorded.

A rule that could not be tried is `not_measured` with its reason, never `holds`.

Sources: docs/protocols.md (admission), in the words of task.toml. Rules that need no GPU are tried on the
task's workloads for the CPU, in the dtypes of both targets as far as PyTorch has them here.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.grading.grade import Grader
from harness.grading.trivial import passing, reference_fails
from harness.judge.problem import Problem
from harness.outcome import Verdict
from harness.records import Grade, Project, Target
from harness.records.task import Admission, Rule
from harness.suite.catalogue import LoadedTask, expert_directory, read_project
from harness.suite.mutants import mutants, sample, sources
from harness.suite.sizes import HOST_BYTES, gib, sizes

LEAST_CAUGHT = 0.95
"""Of an expert's mutants (docs/protocols.md)."""
_DEVICE_BYTES = 20 << 30  # a quarter of an H100's 80 GB
_DRAWS = 8
"""Of inputs for the reference of a timed workload: 96 % find one that fails on a third of them [own]."""
_SAID_CHARS = 600


def admit(loaded: LoadedTask, grader: Grader, most_mutants: int) -> Admission:
    """Try every rule on one task, with builds and checks of at most so many mutated experts.

    Raises InfraError where something of ours failed.
    """
    task = loaded.task
    directory = expert_directory(task)
    project = None if directory is None else read_project(directory)
    rules = [_sources(loaded), sizes_rule(loaded), *_without_projects(loaded)]
    grade = None if project is None else grader.grade(project, loaded)
    rules.append(_expert(grade))
    rules.append(_mutants(loaded, project, grade, grader, most_mutants))
    rules.append(_light(grade))
    return Admission(
        task=task.id,
        version=task.version,
        task_digest=task.digest,
        expert=None if project is None else project.digest,
        target=grader.target,
        rules=tuple(rules),
    )


def _rule(name: str, problems: list[str], said: str = "") -> Rule:
    """Fails where there are problems."""
    status = "fails" if problems else "holds"
    text = "; ".join(problems) if problems else said
    return Rule.model_validate({"name": name, "status": status, "said": text[:_SAID_CHARS]})


def _sources(loaded: LoadedTask) -> Rule:
    """Timed sizes are those of real models, and say of which."""
    missing = [w.name for w in loaded.task.workloads if w.timed and not w.source]
    return _rule("sources", [f"workload {name} is timed and has no `source`" for name in missing])


def sizes_rule(loaded: LoadedTask) -> Rule:
    """Every workload can be judged: on the CPU target, and on an H100 with 80 GB."""
    limits: dict[Target, int] = {"cpu": HOST_BYTES, "cuda": _DEVICE_BYTES}
    found = [(target, size) for target in loaded.task.dtypes for size in sizes(loaded.task, target)]
    over = [
        f"{size.label} takes {gib(size.judged_bytes)} on {target}, which allows {gib(limits[target])}"
        for target, size in found
        if size.judged_bytes > limits[target]
    ]
    largest = {target: max(size.judged_bytes for t, size in found if t == target) for target, _ in found}
    return _rule("sizes", over, ", ".join(f"{t} at most {gib(n)}" for t, n in largest.items()))


# --- rules that need no project -------------------------------------------------------------------


def _problems(loaded: LoadedTask) -> Iterator[Problem]:
    """Timed workloads for the CPU in the dtypes of both targets, then the others in those of the CPU."""
    task = loaded.task
    every = dict.fromkeys([*task.dtypes.get("cpu", ()), *task.dtypes.get("cuda", ())])
    for workload in sorted(task.workloads_for("cpu"), key=lambda one: not one.timed):
        for dtype in every if workload.timed else task.dtypes.get("cpu", ()):
            yield Problem(loaded, workload, dtype)


def _without_projects(loaded: LoadedTask) -> list[Rule]:
    """The reference passes; trivial answers, ignored inputs and coarse ones do not where it is timed."""
    wrong: dict[str, list[str]] = {"reference": [], "trivial": [], "inputs": [], "precision": []}
    tried = dict.fromkeys(wrong, 0)
    unknown: list[str] = []
    for problem in _problems(loaded):
        try:
            said = _reference_fails(problem)
            passed = passing(problem) if problem.workload.timed else []
        except RuntimeError as error:  # what PyTorch raises for an op without that dtype
            unknown.append(f"{problem.label}: PyTorch here says {str(error).splitlines()[0][:120]}")
            continue
        tried["reference"] += 1
        wrong["reference"] += [] if said is None else [said]
        for what in passed:
            wrong[_rule_of(what)].append(f"{problem.label}: {what} passes")
        for name in ("trivial", "inputs", "precision"):
            tried[name] += problem.workload.timed
    return [_tried(name, wrong[name], tried[name], unknown) for name in wrong]


def _reference_fails(problem: Problem) -> str | None:
    """The first failure of several draws where it is timed, else of one."""
    draws = _DRAWS if problem.workload.timed else 1
    return next((said for said in (reference_fails(problem) for _ in range(draws)) if said is not None), None)


def _rule_of(what: str) -> str:
    if what.startswith("ignores"):
        return "inputs"
    return "precision" if what.startswith("inputs in") else "trivial"


def _tried(name: str, wrong: list[str], count: int, unknown: list[str]) -> Rule:
    if count == 0 and not wrong:
        text = "; ".join(unknown) or "no workload for the CPU"
        return Rule.model_validate({"name": name, "status": "not_measured", "said": text[:_SAID_CHARS]})
    left_out = f"; {len(unknown)} not tried: {unknown[0]}" if unknown else ""
    draws = f", timed ones on {_DRAWS} draws" if name == "reference" else ""
    return _rule(name, wrong, f"{count} problems{draws}{left_out}")


# --- rules that need the expert -------------------------------------------------------------------


def _not_measured(name: str, why: str) -> Rule:
    return Rule.model_validate({"name": name, "status": "not_measured", "said": why[:_SAID_CHARS]})


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
    """Off-by-one mistakes in the expert's source are found."""
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
    """An expert above the speed of light means that the task counts its work wrongly."""
    timed = [] if grade is None or grade.timing is None else grade.timing.workloads
    shares = {f"{w.workload} {w.dtype}": w.speed_of_light for w in timed if w.speed_of_light is not None}
    if not shares:
        return _not_measured("light", "needs a timed grade on a GPU that is in the table of boards")
    over = [f"{name} is at {share:.2f} of the speed of light" for name, share in shares.items() if share > 1]
    return _rule("light", over, f"at most {max(shares.values()):.2f}")
