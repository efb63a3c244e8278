"""Runs of test cases: what is asked, kept, resumed and counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cases.benchmark import benchmark
from harness.cases.running import CasesStore, answers_of, cases_config, run_cases, tally
from harness.cases.schema import CasesTally, Check, TestCase
from harness.cases.scoring import Commands, verdict, worth_of
from harness.cli.case_runs import TALLY, print_failures
from harness.cli.main import run as command
from harness.errors import PermanentProviderError, ProviderError, UsageError
from harness.records import ModelSpec, Reply, Request, Skill, Usage
from harness.study.executor import LocalExecutor
from sandboxes.pool import SandboxPool
from tests.fakes.trials import FakeModel

SKILL = Skill(name="gpu", description="d", body="\nUse sm_90a.\n", files=("SKILL.md",), digest="5" * 64)
KNOWS = TestCase(id="knows", prompt="Which arch?", checks=(Check(kind="contains", text="sm_90a"),))
ECHOED = TestCase(id="echoed", prompt="Say hello.", checks=(Check(kind="contains", text="hello"),))
PROSE = TestCase(id="prose", prompt="Be nice.", not_checkable=("It is nice",))
CASES = (KNOWS, ECHOED, PROSE)
MODEL = ModelSpec(name="fake/one")


def said(text: str) -> Reply:
    """A reply with known costs but its input tokens."""
    usage = Usage(input_tokens=None, output_tokens=10)
    return Reply(text=text, stop="end", model_label="fake", created="2026-01-01", usage=usage, cost_usd=0.5)


def echo(request: Request) -> Reply:
    """The user's message, whole: with a skill before it, the skill too."""
    return said(request.messages[-1].content)


def run(
    root: Path,
    answer: Callable[[Request], Reply],
    cases: tuple[TestCase, ...] = CASES,
    commands: Commands | None = None,
    repeats: int = 2,
) -> tuple[CasesStore, FakeModel, tuple[str, ...]]:
    """One run with one model."""
    model = FakeModel(answer)
    store = CasesStore.open(cases_config(SKILL, cases, [MODEL], repeats=repeats), root)
    problems = run_cases(store, {model.name: model}, LocalExecutor(2), commands=commands)
    return store, model, problems


def counted(store: CasesStore) -> CasesTally:
    """Its sums."""
    head = store.run()
    return tally(head, store.load(), [worth_of(case, None) for case in head.config.cases])


def test_the_arms_differ_in_the_skills_text_alone(tmp_path: Path) -> None:
    """Same system text, same case; the skill stands before it as in an eval; prose is not asked."""
    _, model, _ = run(tmp_path, echo, repeats=1)
    asked = {(one.task, one.arm.partition("-")[0]): one for one in model.asked}
    assert sorted(asked) == [(c, arm) for c in ("echoed", "knows") for arm in ("with_skill", "without_skill")]
    without, given = asked["knows", "without_skill"], asked["knows", "with_skill"]
    assert given.messages[0] == without.messages[0]
    assert given.messages[1].content == (
        '<skill name="gpu">\nUse sm_90a.\n</skill>\n\n' + without.messages[1].content
    )


def test_an_echo_model_gains_only_what_the_skill_says_and_worthless_cases_do_not_count(
    tmp_path: Path,
) -> None:
    """The echoed case is passed in both arms and in no total; a sum with an unknown part is unknown."""
    result = counted(run(tmp_path, echo)[0])
    [one] = result.models
    rows = {row.case: row for row in one.rows}
    assert (rows["echoed"].without_skill.passed, rows["echoed"].with_skill.passed) == (2, 2)
    assert rows["echoed"].worth.worth == rows["prose"].worth.worth == "none"
    assert (rows["knows"].without_skill.passed, rows["knows"].with_skill.passed) == (0, 2)
    assert not rows["knows"].tells_nothing_apart and rows["echoed"].tells_nothing_apart
    assert (one.without_skill.rate.passed, one.without_skill.rate.scored) == (0, 2)
    assert (one.with_skill.rate.passed, one.with_skill.rate.scored) == (2, 2)
    sums = one.with_skill
    assert (sums.input_tokens, sums.output_tokens, sums.cost_usd) == (None, 40, 2.0)


def test_finished_answers_are_kept_and_a_torn_line_is_owed(tmp_path: Path) -> None:
    """The same command finds the same folder and asks for what is missing."""
    store, first, _ = run(tmp_path, echo)
    path = store.folder / "cases.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    again, second, _ = run(tmp_path, echo)
    assert (again.folder, len(first.asked), len(second.asked)) == (store.folder, 8, 1)
    assert len(again.load()) == len(answers_of(again.run().config)) == 8
    assert run(tmp_path, echo, repeats=3)[0].folder != store.folder
    strange = SKILL.model_copy(update={"name": "../../x\n"})  # a foreign skill may have any name
    store = CasesStore.open(cases_config(strange, CASES, [MODEL], repeats=1), tmp_path / "runs")
    assert store.folder.parent == tmp_path / "runs" and store.folder.is_dir()


def test_a_provider_that_fails_leaves_an_answer_owed(tmp_path: Path) -> None:
    """The others are finished; what lasts ends the run."""

    def failing(request: Request) -> Reply:
        if request.task == "knows" and request.arm == "without_skill":
            raise ProviderError("the server is down")
        return echo(request)

    store, _, problems = run(tmp_path, failing)
    assert len(problems) == 2 and all("the server is down" in problem for problem in problems)
    assert counted(store).answers_owed == 2
    store, model, problems = run(tmp_path, echo)
    assert (len(model.asked), problems, counted(store).answers_owed) == (2, (), 0)

    def refusing(request: Request) -> Reply:
        raise PermanentProviderError("no such model")

    with pytest.raises(PermanentProviderError):
        run(tmp_path / "other", refusing)


def test_an_answer_whose_command_was_not_run_is_scored_later_without_asking(
    tmp_path: Path, sandbox: SandboxPool
) -> None:
    """The reply was paid for; a sandbox is enough."""
    case = TestCase(
        id="c", prompt="Write out.txt", checks=(Check(kind="command", text="test -s out.txt", wall_s=20.0),)
    )
    store, first, _ = run(tmp_path, lambda request: said("```text out.txt\nhi\n```"), (case,), repeats=1)
    [one] = counted(store).models
    assert (one.rows[0].with_skill.scored, one.rows[0].with_skill.not_run) == (0, 1)
    commands = Commands(sandbox, Path(sys.executable))
    store, second, _ = run(tmp_path, echo, (case,), commands, repeats=1)
    assert (len(first.asked), len(second.asked)) == (2, 0)
    assert {(verdict(a.outcomes), a.sandbox) for a in store.load().values()} == {("passed", "local")}


def test_a_damaged_head_is_refused(tmp_path: Path) -> None:
    """cases.json holds the cases and the skill's text, so that every prompt can be read again."""
    store, _, _ = run(tmp_path, echo)
    config = store.run().config
    assert config.skill_text.startswith('<skill name="gpu">') and config.cases == CASES
    (store.folder / "cases.json").write_text("{")
    with pytest.raises(UsageError, match="damaged"):
        store.run()


def test_benchmark_json_has_skill_creators_names(tmp_path: Path) -> None:
    """Per reply and per configuration; unknown tokens and times are null; a worthless case is named."""
    store, _, _ = run(tmp_path, echo)
    head = store.run()
    worths = [worth_of(case, None) for case in head.config.cases]
    made = benchmark(head, store.load(), worths, MODEL.name)
    assert list(made) == ["metadata", "runs", "run_summary", "notes"]
    assert list(made["metadata"]) == [
        *("skill_name", "skill_path", "executor_model", "analyzer_model", "timestamp"),
        *("evals_run", "runs_per_configuration"),
    ]
    assert (made["metadata"]["evals_run"], made["metadata"]["runs_per_configuration"]) == ([1, 2], 2)
    assert len(made["runs"]) == 8
    row = made["runs"][0]
    assert list(row) == [
        *("eval_id", "eval_name", "configuration", "run_number", "result", "expectations", "notes")
    ]
    assert (row["eval_id"], row["eval_name"], row["configuration"]) == (1, "knows", "without_skill")
    assert row["result"] == {
        "pass_rate": 0.0,
        "passed": 0,
        "failed": 1,
        "total": 1,
        "time_seconds": None,
        "tokens": None,
        "tool_calls": 0,
        "errors": 0,
    }
    assert row["expectations"] == [
        {"text": "contains 'sm_90a'", "passed": False, "evidence": "the reply does not contain 'sm_90a'"}
    ]
    summary = made["run_summary"]
    assert list(summary) == ["with_skill", "without_skill", "delta"]
    assert summary["with_skill"]["pass_rate"] == {"mean": 1.0, "stddev": 0.0, "min": 1.0, "max": 1.0}
    assert summary["without_skill"]["pass_rate"]["mean"] == 0.5
    assert summary["delta"] == {"pass_rate": "+0.50", "time_seconds": None, "tokens": None}
    assert any(note.startswith("echoed: worthless") for note in made["notes"])


def test_a_failing_check_is_named_with_the_reply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once per case and arm, with how often; the reply is clipped, and whole on request."""
    store, _, _ = run(tmp_path, lambda request: said("An H100.\n" + "x" * 90 + " end"))
    print_failures(store, 40)
    shown = capsys.readouterr().out
    assert shown.count("knows without skill (fake/one): 2 of 2 failed") == 1
    assert "  contains 'sm_90a': the reply does not contain 'sm_90a'" in shown
    assert "  | An H100." in shown and " end" not in shown and "more characters (--whole)" in shown
    print_failures(store, None)
    assert "end" in capsys.readouterr().out


def test_a_run_of_cases_is_in_runs_show_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the end of its name: passes by arm, a case with every reply, the tally; `-` before its end."""
    monkeypatch.setenv("COLUMNS", "140")
    store, _, _ = run(tmp_path, echo)
    name, where = store.folder.name[-8:], ["--runs-dir", str(tmp_path)]
    assert command(["runs", *where]) == 0
    assert capsys.readouterr().out.split()[-5:] == ["gpu", "fake/one", "3", "-", "-"]
    assert command(["report", name, *where]) == 2
    assert "has no tally yet" in " ".join(capsys.readouterr().err.split())
    (store.folder / TALLY).write_text(counted(store).model_dump_json())
    assert command(["runs", *where]) == 0
    assert capsys.readouterr().out.split()[-7:] == ["gpu", "fake/one", "3", "0/2", "0%", "2/2", "100%"]
    assert command(["runs", *where, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["with_skill"] == {"passed": 2, "scored": 2, "not_run": 0}
    assert command(["show", name, "know", *where]) == 0
    shown = capsys.readouterr().out
    assert "Which arch?" in shown and "without skill #1 (fake/one): failed" in shown
    assert "contains 'sm_90a': the reply does not contain 'sm_90a'" in shown and "'sm_90a': passed" in shown
    assert command(["show", str(store.folder), "o", *where]) == 2
    assert "3 cases match 'o'; give one of knows, echoed, prose" in " ".join(capsys.readouterr().err.split())
    assert command(["show", name, "knows", "--json", *where]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4
    assert command(["report", name, *where]) == 0
    assert "without the worthless" in capsys.readouterr().out
