"""The exchange of one trial: turns, steps, and what is kept of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.builder.build import build
from harness.errors import BudgetSpent, DeviceError
from harness.files import data_directory, write_atomically
from harness.grading.grade import Grader
from harness.outcome import Cause, Verdict
from harness.records import (
    Arm,
    Grade,
    Message,
    Project,
    Reply,
    Request,
    Sampling,
    ToolCall,
    TrialKey,
    TrialRecord,
)
from harness.student.skill_tool import TOOL
from harness.study.executor import LocalExecutor
from harness.study.plan import grading_key
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask, load_task
from tests.fakes.projects import fake_toolchain
from tests.fakes.projects import project as tiny_project
from tests.fakes.sandbox import FakeSandbox, exit_facts
from tests.fakes.tiny import project_reply, write_tasks
from tests.fakes.trials import (
    A_SKILL,
    SKILL,
    TASKS,
    FailsAt,
    FakeGrader,
    FakeModel,
    Silent,
    config,
    reply,
    run_record,
    runner,
)

OVERFLOW = reply("").model_copy(update={"stop": "overflow"})


def project(text: str) -> Reply:
    """A reply with a project; its text is in a comment."""
    return reply(f"```toml build.toml\n# {text}\n[general]\n```\n", cost=1.0)


def asks(path: str) -> Reply:
    """A reply that asks for a file."""
    call = ToolCall(id="c0", name=TOOL.name, arguments=json.dumps({"skill": "a-skill", "path": path}))
    return reply("").model_copy(update={"stop": "tool", "tool_calls": (call,)})


class Saying(FakeGrader):
    """Fails every build with a message of its own, numbered, and remembers what it was given."""

    def __init__(self, before: Callable[[], None] = lambda: None, says: str = "error") -> None:
        super().__init__(before)
        self._says = says
        self.given: list[tuple[Project, LoadedTask]] = []

    def grade(self, project: Project, loaded: LoadedTask, **rest: Any) -> Grade:
        """Remembers."""
        self.given.append((project, loaded))
        made = super().grade(project, loaded, **rest)
        finding = made.finding.model_copy(update={"message": f"{self._says} {self.graded}"})
        build = made.build.model_copy(update={"finding": finding}) if made.build else None
        return made.model_copy(update={"finding": finding, "build": build})


def make_store(folder: Path, turns: int = 3, delivery: str = "body") -> RunStore:
    """A run of one task and one repeat in two arms."""
    arms = tuple(arm.model_copy(update={"delivery": delivery}) for arm in config().arms)
    wanted = {"turns": turns, "arms": arms, "tasks": TASKS[:1], "repeats": 1}
    return RunStore.create(folder / "run", run_record(config().model_copy(update=wanted)))


def one_task() -> dict[str, LoadedTask]:
    """The task of `make_store`."""
    return {TASKS[0]: load_task(data_directory("tasks") / TASKS[0])}


def scripted(*replies: Reply) -> Callable[[Request], Reply]:
    """The n-th reply of every trial is the n-th of these, the last one for ever."""
    counts: dict[str, int] = {}

    def say(request: Request) -> Reply:
        index = counts.get(request.arm, 0)
        counts[request.arm] = index + 1
        return replies[min(index, len(replies) - 1)]

    return say


def carry_out(
    store: RunStore, say: Callable[[Request], Reply], grader: FakeGrader | None = None
) -> tuple[list[TrialRecord], FakeModel, Any]:
    """(records, the model, how the run ended), one trial at a time."""
    model = FakeModel(say)
    judge: Any = grader or Saying()
    run = runner(store, one_task(), model, judge, A_SKILL)
    outcome = run.execute(LocalExecutor(1), Silent())
    return store.load(), model, outcome


def test_every_answer_is_graded_and_the_last_one_counts(tmp_path: Path) -> None:
    """Each is told what came of it; all are kept and charged."""
    store = make_store(tmp_path)
    records, model, _ = carry_out(store, scripted(project("one"), project("two"), project("three")))
    assert len(records) == 2 and len(model.asked) == 6
    for record in records:
        assert [turn.index for turn in record.turns] == [0, 1, 2]
        assert len({turn.project for turn in record.turns}) == 3
        assert record.grade is not None and record.grade == record.turns[-1].grade
        assert record.grading_key == grading_key(record.grade)
        assert sum(r.cost_usd or 0.0 for turn in record.turns for r in turn.replies) == 3.0
        folder = store.turn_folder(record.key)
        for index, text in enumerate(("one", "two", "three")):
            place = folder / f"turn-{index}" if index else folder
            assert text in (place / "project" / "build.toml").read_text()
            assert (place / "build.log").is_file() and (place / "reply.json").is_file()
    first = model.asked[0]
    later = [r for r in model.asked if r.arm == first.arm]
    assert [r.turn for r in later] == [0, 1, 2]
    assert [m.role for m in later[2].messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert later[2].messages[:3] == later[1].messages[:3]
    assert "> error 1" in later[1].messages[-1].content
    assert "It is your last one." in later[2].messages[-1].content


BUILD, NONE, LONG = Cause.COMPILE_ERROR, Cause.NO_FILES, Cause.CONTEXT_OVERFLOW
KEEP = reply("KEEP\n")


@pytest.mark.parametrize(
    ("turns", "replies", "kept", "causes", "asked"),
    [
        (3, [project("one"), KEEP], [False, True], [BUILD, BUILD], 2),
        (3, [KEEP, project("one"), KEEP], [False, False, True], [NONE, BUILD, BUILD], 3),
        (2, [project("one"), reply("Done!")], [False, False], [BUILD, NONE], 2),
        (3, [OVERFLOW], [False], [LONG], 1),
        (3, [project("one"), asks("SKILL.md"), OVERFLOW], [False, True], [BUILD, BUILD], 3),
    ],
    ids=["keep", "nothing to keep", "no project", "overflow", "steps first"],
)
def test_how_an_exchange_goes_on_and_ends(
    turns: int, replies: list[Reply], kept: list[bool], causes: list[Cause], asked: int, tmp_path: Path
) -> None:
    """KEEP repeats the grade before; an overflow ends the exchange; steps before it are charged."""
    store, grader = make_store(tmp_path, turns=turns, delivery="disclosed"), Saying()
    records, model, _ = carry_out(store, scripted(*replies), grader)
    assert len(records) == 2 and len(model.asked) == 2 * asked
    assert grader.graded == 2 * sum(found.text.startswith("```") for found in replies)
    for record in records:
        assert [turn.kept for turn in record.turns] == kept
        assert [t.grade.finding.cause for t in record.turns if t.grade is not None] == causes
        for before, turn in itertools.pairwise(record.turns):
            assert not turn.kept or (turn.project, turn.grade) == (before.project, before.grade)
        steps = sum(len(turn.steps) for turn in record.turns)
        assert steps == sum(one.stop == "tool" for one in replies)
    assert bool(list(store.folder.rglob("turn-*"))) == (asked > 1)


def test_files_of_a_skill_are_read_in_steps(tmp_path: Path) -> None:
    """Each step is a file on disk and stands in the record; without the skill there is nothing to read."""
    store = make_store(tmp_path, turns=1, delivery="disclosed")
    records, model, _ = carry_out(store, scripted(asks("SKILL.md"), project("one")))
    assert {r.key.arm: [s.reads for s in r.turns[0].steps] for r in records} == {
        "without_skill-disclosed": [()],
        Arm(kind="with_skill", skills=(SKILL,), delivery="disclosed").id: [("a-skill/SKILL.md",)],
    }
    assert all(r.tools == (TOOL,) for r in model.asked) and {r.step for r in model.asked} == {0, 1}
    names = {p.name for p in store.turn_folder(records[0].key).iterdir()}
    assert {"prompt.json", "reply.json", "prompt-step-1.json", "reply-step-1.json"} <= names


def test_our_failure_in_a_later_turn_costs_no_reply(tmp_path: Path) -> None:
    """It is retried from what was paid for; the turn before is neither asked nor graded again."""
    failing = FailsAt(DeviceError("the GPU is gone"), 2)
    store, grader = make_store(tmp_path), Saying(failing)
    records, model, _ = carry_out(store, scripted(project("one"), project("two"), reply("KEEP")), grader)
    assert len(model.asked) == 6 and failing.count == 5
    (retried,) = [r for r in records if r.failures]
    assert retried.verdict is Verdict.BUILD_FAILED and len(retried.turns) == 3
    folder = store.turn_folder(retried.key)
    assert (folder / "turn-1" / "attempt-1" / "build.log").is_file()
    assert not (folder / "attempt-1").exists() and (folder / "build.log").is_file()


def test_a_grade_of_killed_processes_is_not_told(tmp_path: Path) -> None:
    """Whoever stops a run kills what is being graded: no later prompt may rest on that."""
    store, executor = make_store(tmp_path), LocalExecutor(1)
    model = FakeModel(scripted(project("one")))
    judge: Any = Saying(lambda: run.stop("test", executor))
    run = runner(store, one_task(), model, judge, A_SKILL)
    assert run.execute(executor, Silent()).stopped == "test"
    assert len(model.asked) == 1 and store.load() == []
    assert not list(store.folder.rglob("turn-1")) and not list(store.folder.rglob("check.json"))


def test_a_budget_that_is_spent_between_turns_leaves_the_trial_owed(tmp_path: Path) -> None:
    """With more of it the trial goes on where it was, whatever the first turn's grade says now."""
    store = make_store(tmp_path, turns=2)
    say = scripted(project("one"), project("two"))

    def stingy(request: Request) -> Reply:
        if request.turn:
            raise BudgetSpent("call budget: 1 of 1 calls used")
        return say(request)

    records, model, outcome = carry_out(store, stingy, Saying(says="first grade"))
    assert (records, outcome.stopped, len(model.asked)) == ([], "call budget: 1 of 1 calls used", 2)
    told = store.request(TrialKey(task=TASKS[0], model="fake/one", arm=model.asked[0].arm, repeat=0), turn=1)
    assert "> first grade 1" in told.messages[-1].content
    records, model, _ = carry_out(store, scripted(project("two")), Saying(says="second grade"))
    asked = [r for r in model.asked if r.arm == told.arm]
    assert asked == [told]
    digests = {r.key.arm: r.turns[1].prompt_digest for r in records}
    assert digests[told.arm] == told.prompt_digest


def test_a_later_prompt_of_another_exchange_is_made_again(tmp_path: Path) -> None:
    """A stored prompt is used only if it can be read and continues this exchange."""
    store = make_store(tmp_path, turns=2)
    roles = ("system", "user", "assistant", "user")
    messages = tuple(Message(role=role, content="FOREIGN") for role in roles)  # type: ignore[arg-type]
    foreign = Request(messages=messages, sampling=Sampling(), task=TASKS[0], arm="a", repeat=0, turn=1)
    texts = ("{", foreign.model_dump_json())
    for arm, text in zip(store.run().config.arms, texts, strict=True):
        key = TrialKey(task=TASKS[0], model="fake/one", arm=arm.id, repeat=0)
        write_atomically(store.turn_folder(key, 1) / "prompt.json", text)
    records, model, _ = carry_out(store, scripted(project("one"), project("two")))
    assert [len(r.turns) for r in records] == [2, 2]
    assert all("FOREIGN" not in m.content for r in model.asked for m in r.messages)


def test_the_grader_is_not_told_the_arm(tmp_path: Path) -> None:
    """It gets a project and a task; equal answers of two arms are equal to it, and so are their grades."""
    grader = Saying()
    store = make_store(tmp_path)
    carry_out(store, scripted(project("one"), reply("no"), project("two")), grader)
    half = len(grader.given) // 2
    first, second = grader.given[:half], grader.given[half:]
    assert half == 2 and [p for p, _ in first] == [p for p, _ in second]
    assert all(one[1] is other[1] for one, other in zip(first, second, strict=True))
    for found, loaded in grader.given:
        seen = found.model_dump_json() + loaded.task.model_dump_json() + str(loaded.directory)
        assert not any(arm.id in seen or arm.kind in seen for arm in store.run().config.arms)


def test_the_log_of_an_arm_is_no_part_of_what_is_built(tmp_path: Path) -> None:
    """The grader may write it where the trial lies; no process is started with that path."""
    sandbox = FakeSandbox(exit_facts("nonzero", "FAILED: [code=1] obj/a\nc++ -c x\na.cpp:1:1: error: x\n", 1))
    log = tmp_path / "with_skill-12345678" / "0" / "turn-1" / "build.log"
    tools = fake_toolchain(tmp_path / "toolchain")
    build(tiny_project(), "cpu", sandbox=sandbox, toolchain=tools, cache=tmp_path / "cache", log=log)
    assert log.is_file() and sandbox.jobs
    assert "with_skill" not in repr(sandbox.jobs) + repr(sandbox.inputs)


@pytest.mark.slow
def test_a_kernel_is_repaired_for_real(tmp_path: Path, grader: Grader) -> None:
    """A build that fails, a wrong result, an exception, a correct kernel: told as they were graded."""
    loaded = load_task(write_tasks(tmp_path, ("one",)) / "t" / "one")
    texts = [
        project_reply("one").replace("i < n", "i < nn"),
        project_reply("one", "2.0f * alpha"),
        project_reply("one").replace("ops.one(out, x, alpha)", "raise RuntimeError(out.shape)"),
        project_reply("one"),
        "KEEP",
    ]
    wanted = {"turns": 6, "arms": config().arms[:1], "tasks": (loaded.task.id,), "repeats": 1}
    store = RunStore.create(tmp_path / "run", run_record(config().model_copy(update=wanted)))
    model = FakeModel(scripted(*map(reply, texts)))
    run = runner(store, {loaded.task.id: loaded}, model, grader)
    run.execute(LocalExecutor(1), Silent())
    (record,) = store.load()
    assert [t.grade.verdict for t in record.turns if t.grade is not None] == [
        Verdict.BUILD_FAILED,
        Verdict.WRONG_RESULT,
        Verdict.CRASHED,
        Verdict.CORRECT,
        Verdict.CORRECT,
    ]
    told = [request.messages[-1].content for request in model.asked[1:]]
    assert "'nn' was not declared in this scope" in told[0]
    assert "of 65536 elements of out are out of tolerance; the worst, at [" in told[1]
    assert '>   File "torch-ext/one/__init__.py", line 5, in one' in told[2]
    assert "| square float32 | " in told[3] and " (eager) | " in told[3]
    assert not any(place in text for text in told for place in ("/tmp", str(Path.cwd()), str(tmp_path)))
    assert all((store.turn_folder(record.key, n) / "build.log").is_file() for n in range(4))
    assert (store.turn_folder(record.key, 3) / "timing.json").is_file()
