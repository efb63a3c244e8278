"""`liftbench generate`, whole: one server is teacher and student, and projects are really built."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from harness.cases.importing import load_cases
from harness.cli.main import run
from harness.skills.spec import validate_skill
from harness.teaching.record import GenerationRecord
from tests.fakes.chat_server import Refusal, serving
from tests.fakes.tiny import project_reply, write_tasks

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("one", "two", "three", "four", "five", "six")
_SKILL = "---\nname: doubling\ndescription: Doubles.\n---\n\n{words}\n"

EVALS = """<file path="evals/evals.json">
{"evals": [{"id": 1, "prompt": "How many?", "assertions": [{"type": "contains", "values": ["twice"]}]}]}
</file>
"""

Server = tuple[str, list[dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("toolchain")


def teacher_and_student(body: dict[str, Any]) -> str | Refusal:
    """The teacher's second version says what a project needs; students do what they are told."""
    prompt = body["messages"][-1]["content"]
    if body["model"] == "refused":
        return Refusal()
    if body["model"] == "teacher" and "test cases" in prompt:
        return EVALS
    if body["model"] == "teacher":
        words = "Write a whole project." if "What readers made of it" in prompt else "Write well."
        return f'<file path="SKILL.md">\n{_SKILL.format(words=words)}</file>\n'
    if "Write a whole project." in prompt:
        named = (name for name in NAMES if f"module `{name}`" in prompt or f"package `{name}`" in prompt)
        return project_reply(next(named), "2.0f * alpha")
    return "```toml build.toml\nbroken\n```\n"


@pytest.fixture
def server() -> Iterator[Server]:
    """Its base URL, and the requests that it saw."""
    with serving(teacher_and_student) as made:
        yield made


Generate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Generate:
    """Runs the command in a folder of its own; exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def invoke(url: str, *words: str) -> tuple[int, str, str]:
        own = ["--teacher", "local/teacher", "--teacher-base-url", url, "--target", "cpu"]
        own += ["--sandbox", "local", "--tasks-root", str(tmp_path / "tasks")]
        own += ["--cache", str(tmp_path / "cache")]
        own += [] if "--cases" in words else ["--cases", "0"]
        code = run(["generate", "Double elements fast", *own, *words])
        return code, *capsys.readouterr()

    return invoke


@pytest.mark.slow
def test_a_skill_is_written_refined_and_tested_for_real(
    generate: Generate, tmp_path: Path, server: Server
) -> None:
    """From one sentence to a lift on unseen families; a spent budget is gone on with, nothing paid twice."""
    url, seen = server
    write_tasks(tmp_path, NAMES)
    words = ["-m", "local/student", "--base-url", url, "--refine", "1", "--runs", "1", "--metric", "compiles"]
    code, out, err = generate(url, *words, "--max-calls", "6")
    assert code == 0, err
    assert "call budget" in out
    [folder] = (tmp_path / "runs").glob("generate-*")
    partly = GenerationRecord.model_validate_json((folder / "generation.json").read_text())
    assert partly.stopped is not None
    assert len(seen) == 6

    code, out, err = generate(url, *words)
    assert code == 0, err
    record = GenerationRecord.model_validate_json((folder / "generation.json").read_text())
    assert [c.selection for c in record.candidates] == [0.0, 1.0]
    assert (record.chosen, record.stopped) == (1, None)
    assert record.look is not None and record.look.alpha == 0.025
    skill = tmp_path / "skills" / "doubling"
    assert [f for f in validate_skill(skill) if f.severity == "error"] == []
    assert "Write a whole project." in (skill / "SKILL.md").read_text()
    assert "x doubling" in out
    assert "inconclusive" in out  # three families are too few
    assert "warning: the test did not show that it beats no skill" in out
    assert err.count("teacher local/teacher writes: 0:") == 1  # the first reply was kept
    assert record.test_run is not None
    assert (Path(tmp_path / record.test_run) / "report.html").is_file()
    teachers = [body for body in seen if body["model"] == "teacher"]
    assert len(teachers) == 2
    told = teachers[1]["messages"][-1]["content"]
    assert "bad_build_toml" in told
    unseen = {*record.families["selection"], *record.families["test"]}
    assert not any(f"t/{family}" in told for family in unseen)

    before = len(seen)
    code, out, err = generate(url, *words, "--json")
    assert code == 0, err
    assert len(seen) == before
    assert json.loads(out)["look"]["number"] == 1


def test_without_evaluation_one_reply_is_enough(generate: Generate, tmp_path: Path, server: Server) -> None:
    """--no-eval asks the teacher once, in one command at a time; -o names it; --force an edited one."""
    url, seen = server
    write_tasks(tmp_path, ("one",))
    words = ["--no-eval", "-o", str(tmp_path / "my-skill"), "-e", "rows->one warp per row"]
    code, out, err = generate(url, *words)
    assert code == 0, err
    assert (tmp_path / "my-skill" / "SKILL.md").is_file()
    assert [f for f in validate_skill(tmp_path / "my-skill") if f.severity == "error"] == []
    assert len(seen) == 1
    assert "one warp per row" in seen[0]["messages"][-1]["content"]
    assert "not evaluated" in out
    assert "liftbench-refined-on: one" in (tmp_path / "my-skill" / "SKILL.md").read_text()
    assert generate(url, *words)[0] == 0
    [folder] = (tmp_path / "runs").glob("generate-*")
    with FileLock(folder / ".lock"):
        code, _, err = generate(url, *words)
    assert code == 2 and "another liftbench is at work" in err
    assert len(seen) == 1
    with (tmp_path / "my-skill" / "SKILL.md").open("a") as sink:
        sink.write("Mine.\n")
    code, _, err = generate(url, *words)
    assert code == 2
    assert "--force" in err


def test_test_cases_are_written_with_the_skill(generate: Generate, tmp_path: Path, server: Server) -> None:
    """By one more reply of the teacher, which is kept: the same command again asks nothing."""
    url, seen = server
    write_tasks(tmp_path, ("one",))
    for _ in range(2):
        code, out, err = generate(url, "--no-eval", "--cases", "3")
        assert code == 0, err
        assert len(seen) == 2 and "test cases: 1 in evals/evals.json" in out
    assert "Write 3 test cases" in seen[1]["messages"][-1]["content"]
    assert [case.id for case in load_cases(tmp_path / "skills" / "doubling")] == ["eval-1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--student"),
        (["--no-eval", "-e", "nothing"], "INPUT->OUTPUT"),
        (["-m", "local/student", "--base-url", "http://localhost:1/v1"], "--no-eval"),
        (["-m", "local/s", "--base-url", "http://localhost:1/v1", "--max-cost", "1"], "price"),
        (
            ["--no-eval", "--from", "skills/mine", "--runs-dir", "skills/mine/runs"],
            "the skill that --from names",
        ),
        (["--no-eval", "--from", "skills/odd"], "not a skill name"),
        (["--no-eval", "--from", "skills/none"], "cannot be read"),
        (["--no-eval", "--from", "skills"], "has no SKILL.md"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_asked(
    generate: Generate, tmp_path: Path, words: list[str], message: str
) -> None:
    """No student, a broken example, a bad name or source, too few families, an unknown price: exit code 2."""
    write_tasks(tmp_path, ("one",))
    for folder, name in (("mine", "mine"), ("odd", "../../odd")):
        (tmp_path / "skills" / folder).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Old.\n---\n\nOld words.\n"
        (tmp_path / "skills" / folder / "SKILL.md").write_text(text)
    code, _, err = generate("http://localhost:1/v1", *words)
    assert code == 2, err
    assert message in " ".join(err.split())


def test_a_generation_of_which_all_trials_are_lost_fails(
    generate: Generate, tmp_path: Path, server: Server
) -> None:
    """No version is chosen by nothing: exit 1 after the first split, and no skill is written."""
    url, seen = server
    write_tasks(tmp_path, NAMES)
    words = ["-m", "local/refused", "--base-url", url, "--refine", "1", "--runs", "1", "--metric", "compiles"]
    code, out, err = generate(url, *words)
    assert code == 1
    assert "nothing is scored: all" in err and "no thanks. Read its reason" in err
    assert "written" not in out
    assert not (tmp_path / "skills").exists()
    assert [body["model"] for body in seen].count("teacher") == 1


def test_a_trace_is_read_to_its_end(generate: Generate, tmp_path: Path, server: Server) -> None:
    """An error far behind the start of a long session reaches the teacher."""
    url, seen = server
    write_tasks(tmp_path, ("one",))
    said = [f"Thinking about step {n}. " * 20 for n in range(200)]
    said.append('a.cu(7): error: identifier "wgmma_fence" is undefined')
    trace = tmp_path / "session.jsonl"
    trace.write_text("".join(json.dumps({"role": "user", "content": one}) + "\n" for one in said))
    assert generate(url, "--no-eval", "--from", str(trace))[0] == 0
    assert "wgmma_fence" in seen[0]["messages"][-1]["content"]


def test_an_old_skill_is_rewritten_beside_itself(generate: Generate, tmp_path: Path, server: Server) -> None:
    """--from SKILL_DIR: the teacher reads it, the licence survives, the old folder stays."""
    url, seen = server
    write_tasks(tmp_path, ("one",))
    old = tmp_path / "old" / "doubling"
    old.mkdir(parents=True)
    text = "---\nname: doubling\ndescription: Old.\nlicense: MIT\n---\n\nOld words.\n"
    (old / "SKILL.md").write_text(text)
    out = tmp_path / "new" / "doubling"
    code, _, err = generate(url, "--no-eval", "--from", str(old), "-o", str(out))
    assert code == 0, err
    assert "Old words." in seen[0]["messages"][-1]["content"]
    new = (out / "SKILL.md").read_text()
    assert "license: MIT" in new and "Write well." in new and "Old words." not in new
    assert (old / "SKILL.md").read_text() == text
    code, _, err = generate(url, "--no-eval", "--from", str(old), "-o", str(tmp_path / "other-name"))
    assert code == 2
    assert "keeps its name" in err
