"""Recorded studies: what is published can be replayed, and is what the plan says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from harness.models.recording import RecordingMismatch, ReplayModel, load
from harness.records import Briefing, ModelSpec, Sampling
from harness.report import figures
from harness.report.schema import Summary
from harness.skills.overlap import excluded_tasks
from harness.skills.spec import load_skill
from harness.student.prompts import make_request
from harness.study.plan import run_hash
from harness.study.store import RunStore
from harness.study.study import make_arms
from harness.suite.catalogue import LoadedTask, select_tasks

ROOT = Path(__file__).resolve().parent.parent
STUDIES = sorted(path.parent for path in (ROOT / "studies").glob("*/report.json"))
assert STUDIES
CUDA = ROOT / "studies" / "cuda-kernel-builder"
BUILDER, STALE = "cuda-kernel-builder", "pybind-cuda-kernels"


def whole_tasks(study: Path) -> list[LoadedTask]:
    """The tasks that have a reply in every arm: lost.json names the others."""
    lost = json.loads((study / "lost.json").read_text())
    return [t for t in select_tasks([], study / "tasks") if t.task.id not in lost]


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_every_prompt_of_the_plan_has_its_reply_or_is_named_as_lost(study: Path) -> None:
    """Frozen tasks, skill and arms give the recorded prompts: none is left over, none lost unsaid."""
    tasks = select_tasks([], study / "tasks")
    [directory] = (study / "skills").iterdir()
    skill = load_skill(str(directory)).skill
    arms = make_arms([skill], with_placebo=True)
    recording = load(study / "recording")
    assert recording.manifest.briefing == "full"  # of version 1, which had none
    assert {t.task.id: t.task.digest for t in tasks}.items() <= recording.manifest.tasks.items()
    assert arms.digests.items() <= recording.manifest.skills.items()
    model = ReplayModel(ModelSpec(name=f"replay/{study / 'recording'}"))
    lost: dict[str, list[str]] = {}
    answered = 0
    for loaded in tasks:
        for arm in arms.arms:
            skills = [arms.library[digest] for digest in arm.skills]
            request = make_request(
                loaded.task, "cpu", arm, skills, sampling=Sampling(), repeat=0, briefing="full"
            )
            try:
                assert model.complete(request).text
                answered += 1
            except RecordingMismatch:
                lost.setdefault(loaded.task.id, []).append(arm.kind)
    assert answered == len(recording.replies)
    assert lost == json.loads((study / "lost.json").read_text())


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_a_run_from_before_briefings_keeps_its_name(study: Path) -> None:
    """It is read as `full`, and the same command finds it by the same hash."""
    run = RunStore(study / "run").run()
    assert run.config.briefing == run.lock.briefing == "full"
    assert run.run_id.endswith(run_hash(run.config, run.lock))


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_a_study_is_large_enough_and_does_not_leak(study: Path) -> None:
    """At least twelve tasks of as many families, and none whose solution the skill holds."""
    tasks = whole_tasks(study)
    assert len({t.task.family for t in tasks}) == len(tasks) >= 12
    [directory] = (study / "skills").iterdir()
    assert excluded_tasks([load_skill(str(directory))], tasks) == {}


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_the_report_is_of_this_recording_and_its_figures_stand_in_the_text(study: Path) -> None:
    """report.json counts every recorded reply, and README.md says its decision in the report's words."""
    summary = Summary.model_validate(json.loads((study / "report.json").read_text()))
    tasks = whole_tasks(study)
    assert summary.progress.planned == summary.progress.finished == 3 * len(tasks)
    assert summary.replies.recorded == summary.progress.planned
    assert {task.name for task in summary.head.tasks} == {t.task.id for t in tasks}
    text = " ".join((study / "README.md").read_text().split())
    for comparison in summary.comparisons:
        assert comparison.conclusion.reason in text
        assert comparison.conclusion.decision in text


@pytest.mark.parametrize(
    "report", sorted((ROOT / "studies").glob("*/report-*.json")), ids=lambda path: path.stem
)
def test_the_figures_of_every_part_stand_in_the_text(report: Path) -> None:
    """README.md says the decision, lift and interval of each comparison as the part's report has them."""
    summary = Summary.model_validate(json.loads(report.read_text()))
    text = " ".join((report.parent / "README.md").read_text().split())
    assert summary.comparisons and summary.progress.finished == summary.progress.planned
    for comparison in summary.comparisons:
        row = comparison.primary
        assert comparison.conclusion.decision in text
        assert figures.lifted(row.unit, row.lift, row) in text


@pytest.mark.parametrize(
    ("part", "briefing", "repeats", "skills"),
    [("recording-contract", "contract", 2, (BUILDER, STALE)), ("recording-full", "full", 2, (STALE,))],
    ids=["contract", "full"],
)
def test_every_prompt_of_the_cuda_study_has_its_reply(
    part: str, briefing: Briefing, repeats: int, skills: tuple[str, ...]
) -> None:
    """Every planned cell of each recorded repeat was answered, to the very prompt, and nothing else."""
    tasks = select_tasks([], CUDA / "tasks")
    recording = load(CUDA / part)
    assert recording.manifest.briefing == briefing
    assert {t.task.id: t.task.digest for t in tasks} == recording.manifest.tasks
    model = ReplayModel(ModelSpec(name=f"replay/{CUDA / part}"))
    asked = {}
    for name in skills:
        arms = make_arms([load_skill(str(CUDA / "skills" / name)).skill], with_placebo=name == BUILDER)
        assert arms.digests.items() <= recording.manifest.skills.items()
        for loaded, arm, repeat in itertools.product(tasks, arms.arms, range(repeats)):
            told = {"sampling": Sampling(), "repeat": repeat, "briefing": briefing}
            texts = [arms.library[digest] for digest in arm.skills]
            request = make_request(loaded.task, "cuda", arm, texts, **told)
            asked[loaded.task.id, arm.id, repeat] = model.complete(request)
    assert len(asked) == len(recording.replies)
    assert {reply.model_label for reply in asked.values()} == {"claude (exact version unknown)"}


def test_the_cuda_study_is_large_enough_and_does_not_leak() -> None:
    """Twelve tasks of as many families, and none whose solution a skill holds."""
    tasks = select_tasks([], CUDA / "tasks")
    assert len({t.task.family for t in tasks}) == len(tasks) == 12
    for name in (BUILDER, STALE):
        assert excluded_tasks([load_skill(str(CUDA / "skills" / name))], tasks) == {}
