"""`liftbench cases` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from harness.cli.main import run
from tests.fakes.chat_server import serving

META = {
    "tests": [
        {"id": "echoed", "input": "Fix the bug", "expected": {"contains": ["fix", "bug"]}},
        {"id": "knows", "input": "Which arch?", "expected": {"contains": ["sm_90a"]}},
        {
            "id": "writes",
            "input": "Write out.json",
            "verifiers": [{"type": "command", "cmd": "python -m json.tool out.json"}],
        },
    ]
}


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """A skill with test cases of upskill's, and one sentence of agentskills.io's."""
    folder = tmp_path / "gpu"
    (folder / "evals").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: gpu\ndescription: d\n---\n\nUse sm_90a.\n")
    (folder / "skill_meta.json").write_text(json.dumps(META))
    entry = {
        "id": 7,
        "prompt": "Be nice",
        "expected_output": "Nice.",
        "files": [],
        "assertions": ["It is nice"],
    }
    (folder / "evals" / "evals.json").write_text(json.dumps({"skill_name": "gpu", "evals": [entry]}))
    return folder


def echo(body: dict[str, Any]) -> str:
    """What it was told, and a file."""
    return f"{body['messages'][-1]['content']}\n\n```json out.json\n{{}}\n```\n"


Cases = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cases:
    """`liftbench cases ...`: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("HOME", str(tmp_path))

    def invoke(*words: str | Path) -> tuple[int, str, str]:
        code = run(["cases", *map(str, words)])
        return (code, *capsys.readouterr())

    return invoke


def test_check_says_what_each_case_is_worth(cases: Cases, skill: Path, tmp_path: Path) -> None:
    """A table and a sentence; exit 0 whatever is found, since the file can be read."""
    code, out, err = cases("check", skill, "--sandbox", "local", "--cache", tmp_path / "cache")
    assert code == 0, err
    assert "worthless: an echo of the prompt passes it" in out
    assert "worthless: nothing is checked" in out
    assert out.count("no trivial answer passes it") == 2
    assert "2 of 4 cases prove nothing: an echo of the prompt passes 1, nothing is checked in 1" in out
    code, out, _ = cases("check", skill, "--sandbox", "local", "--cache", tmp_path / "cache", "--json")
    found = json.loads(out)
    assert [one["worth"]["worth"] for one in found["cases"]] == ["none", "some", "some", "none"]
    assert found["sentence"].startswith("2 of 4")


def test_check_opens_no_sandbox_where_nothing_is_run(cases: Cases, tmp_path: Path) -> None:
    """And a file that is none of test cases is a mistake of the user's."""
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([{"input": "Which arch?", "expected": {"contains": ["sm_90a"]}}]))
    code, out, err = cases("check", file)
    assert (code, err) == (0, "") and "0 of 1 cases prove nothing" in out
    file.write_text("[{}]")
    code, _, err = cases("check", file)
    assert code == 2 and f"{file}: [0]: input: is missing" in " ".join(err.split())


@pytest.mark.slow
def test_run_asks_both_arms_keeps_the_answers_and_resumes(cases: Cases, skill: Path, tmp_path: Path) -> None:
    """Against a server that echoes: the skill's words win, and the worthless case is in no total."""
    pytest.importorskip("openai", reason="needs openai (pip install openai)")
    with serving(echo) as (url, seen):
        words = ["run", skill, "-m", "local/echo", "--base-url", url, "--runs", "2", "--sandbox", "local"]
        own = ["--runs-dir", tmp_path / "runs", "--cache", tmp_path / "cache"]
        code, out, err = cases(*words, *own)
        assert code == 0, err
        lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
        assert lines["knows"] == ["0/2", "0%", "2/2", "100%"]
        assert lines["writes"] == ["2/2", "100%", "2/2", "100%", "tells", "nothing", "apart"]
        assert lines["echoed"][:4] == ["2/2", "100%", "2/2", "100%"] and "worthless:" in lines["echoed"]
        assert lines["eval-7"][:2] == ["-", "-"]
        assert lines["total"][:4] == ["2/4", "50%", "4/4", "100%"]
        assert "the decision rests on `liftbench eval`" in out
        assert "knows without skill (local/echo): 2 of 2 failed" in out and "  | Which arch?" in out
        [kept] = (tmp_path / "runs").glob("*/benchmark.json")
        assert json.loads(kept.read_text())["metadata"]["executor_model"] == "local/echo"
        assert "input tokens 6,000, output tokens 1,200" in out
        code, out, err = cases(*words, *own, "--json")
        assert code == 0 and "12 kept" in err and len(seen) == 12
        assert json.loads(out)["models"][0]["with_skill"]["rate"] == {"passed": 4, "scored": 4, "not_run": 0}
        assert cases(*words, "--cases", skill / "evals/evals.json")[0] == 2
        [folder] = (tmp_path / "runs").iterdir()
        with FileLock(folder / ".lock"):
            code, _, err = cases(*words, *own)
        assert code == 2 and "another liftbench is at work" in err
