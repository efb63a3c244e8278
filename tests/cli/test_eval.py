"""`liftbench eval`, whole: in a process of its own, on tasks that take seconds."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import run
from harness.records import Briefing
from tests.fakes.chat_server import Refusal, serving
from tests.fakes.tiny import project_reply, record, write_skill, write_tasks

ROOT = Path(__file__).resolve().parents[2]

Server = tuple[str, list[dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("toolchain")


class Place:
    """A folder with tasks, a skill, runs and a cache, and the command that uses them."""

    def __init__(self, root: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.tasks = write_tasks(root, names)
        self.skill = write_skill(root)
        self._capsys = capsys

    def words(self, *words: str | Path) -> list[str]:
        """The arguments of an eval."""
        own = ["--tasks-root", self.tasks, "--runs-dir", self.root / "runs", "--cache", self.root / "cache"]
        return [
            str(word) for word in ("eval", self.skill, "--target", "cpu", *own, "--sandbox", "local", *words)
        ]

    def mark_as_refined(self, looks: int) -> None:
        """Mark the skill as one that was refined on the family `one`."""
        path, marks = self.skill / "SKILL.md", 'liftbench-lineage: "abc"\n  liftbench-refined-on: "one"'
        entry = f'metadata:\n  {marks}\n  liftbench-looks: "{looks}"\n'
        path.write_text(path.read_text().replace("description", f"{entry}description"))

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """An eval in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "harness.cli.main", *self.words(*words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of an eval in this process."""
        self._capsys.readouterr()
        code = run(self.words(*words))
        return code, *self._capsys.readouterr()

    def listed(self) -> tuple[int, int, int]:
        """Scored, lost and planned trials of the only run, as `liftbench runs` lists it."""
        self._capsys.readouterr()
        assert run(["runs", "--json", "--runs-dir", str(self.root / "runs")]) == 0
        [row] = json.loads(self._capsys.readouterr().out)
        return row["scored"], row["lost"], row["planned"]

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The whole lines of trials.jsonl of the only run."""
        files = list((self.root / "runs").glob("*/trials.jsonl"))
        if not files:
            return []
        lines = files[0].read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


MakePlace = Callable[..., Place]


@pytest.fixture
def make_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> MakePlace:
    """A place with tasks of these names; no keys, and no other log of looks."""
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LIFTBENCH_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *names: Place(tmp_path, names, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interrupted_eval_is_finished_by_the_same_command(
    make_place: MakePlace, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """No end loses a finished trial; Ctrl-C and SIGTERM give a summary and the way to resume."""
    place = make_place("one", "two", "three")
    recording = record(tmp_path, place.tasks, place.skill, 8, "```toml build.toml\nbroken\n```\n")
    words = ["-m", f"replay/{recording}", "--runs", "8", "--max-connections", "1"]
    process = place.start(*words)
    while len(place.finished) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.kill(process.pid, how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    if code > 0:
        name = "Ctrl-C" if how == signal.SIGINT else how.name
        assert f"ended by {name}; finished trials are kept, the same command resumes" in err
        assert "resume to finish" in " ".join(out.split())
    before = place.finished
    assert 3 <= len(before) < 48
    done, out, err = place.run(*words)
    assert done == 0, err
    assert f"{len(before)} finished before" in err
    after = place.finished
    assert after[: len(before)] == before
    keys = [json.dumps(t["key"], sort_keys=True) for t in after]
    assert len(keys) == len(set(keys)) == 48
    assert "inconclusive" in out
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_changed_prompt_is_refused_with_the_reason(make_place: MakePlace, tmp_path: Path) -> None:
    """A recording answers the prompts that were recorded and no others."""
    place = make_place("one")
    recording = record(tmp_path, place.tasks, place.skill, 1, "x")
    path = place.tasks / "t" / "one" / "task.toml"
    path.write_text(path.read_text().replace("= alpha * x", "= 3 * x"))
    code, _, err = place.run("-m", f"replay/{recording}", "--runs", "1")
    assert code == 2
    assert "frozen copies" in " ".join(err.split())


@pytest.mark.parametrize(("recorded", "other"), [("contract", "full"), ("full", "contract")])
def test_a_replay_takes_the_briefing_of_its_recording(
    make_place: MakePlace, tmp_path: Path, recorded: Briefing, other: str
) -> None:
    """Without a flag the recorded prompts are asked again; another briefing is refused by name."""
    place = make_place("one")
    recording = record(tmp_path, place.tasks, place.skill, 1, "I cannot.", recorded)
    words = ["-m", f"replay/{recording}", "--runs", "1", "--metric", "compiles"]
    code, out, _ = place.run(*words, "--dry-run")
    assert code == 0 and f"\nbriefing {recorded}\n" in out
    code, _, err = place.run(*words, "--briefing", other)
    assert code == 2 and not (tmp_path / "runs").exists()
    assert f"recorded with --briefing {recorded}" in err and "leave --briefing out" in " ".join(err.split())
    code, out, err = place.run(*words)
    assert code == 0, err
    assert f"briefing {recorded}" in out
    [run_file] = (tmp_path / "runs").glob("*/run.json")
    told = json.loads(run_file.read_text())
    assert told["config"]["briefing"] == told["lock"]["briefing"] == recorded
    report = json.loads((run_file.parent / "report.json").read_text())
    assert report["head"]["briefing"] == recorded


@pytest.mark.slow
def test_an_unfinished_run_is_not_begun_anew_with_another_briefing(make_place: MakePlace) -> None:
    """It is named, with the ways to go on; once it is finished the other briefing is another run."""
    place = make_place("one")
    with serving(lambda _: "I cannot.") as (url, seen):
        words = ["-m", "local/m", "--base-url", url, "--runs", "2", "--metric", "compiles"]
        assert place.run(*words, "--briefing", "full", "--max-calls", "1")[0] == 0
        code, _, err = place.run(*words)
        assert code == 2
        assert "--briefing contract: " in err and "was begun with --briefing full and owes 3 trials" in err
        assert len(seen) == 1
        assert place.run(*words, "--briefing", "full")[0] == 0
        code, _, err = place.run(*words)
    assert code == 0, err
    prompts = ["edition" in body["messages"][-1]["content"] for body in seen]
    assert prompts == [True] * 4 + [False] * 4


def has_skill(body: dict[str, Any]) -> bool:
    """Whether the student was given a skill."""
    return "<skill" in body["messages"][-1]["content"]


def obedient(body: dict[str, Any]) -> str:
    """A right project with a skill, a wrong one without."""
    return project_reply("one", "alpha" if has_skill(body) else "2.0f * alpha")


@pytest.fixture
def server() -> Iterator[Server]:
    """Its base URL, and the requests that it saw."""
    with serving(obedient) as made:
        yield made


@pytest.mark.slow
def test_an_eval_against_a_local_server_is_real_from_prompt_to_report(
    make_place: MakePlace, tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server of one's own, no key: built, checked, timed, reported in every format; a budget is resumed."""
    url, seen = server
    place = make_place("one")
    words = ["-m", "local/tiny-llama", "--base-url", url, "--runs", "1", "--metric", "correct"]
    code, _, err = place.run(*words, "--max-calls", "1", "--max-connections", "1")
    assert code == 0, err
    assert "call budget" in err and "1 trials are owed" in err
    assert len(seen) == len(place.finished) == 1
    code, out, err = place.run(*words, "--fail-under", "correct=0.5")
    assert code == 0, err
    assert len(seen) == 2
    assert {s["authorization"] for s in seen} == {"Bearer none"}
    by_arm = {t["key"]["arm"].partition("-")[0]: t["turns"][-1] for t in place.finished}
    assert by_arm["without_skill"]["grade"]["verdict"] == "wrong_result"
    assert by_arm["with_skill"]["grade"]["verdict"] == "correct"
    assert by_arm["with_skill"]["grade"]["timing"]["workloads"][0]["student"]["score_us"] > 0
    assert by_arm["with_skill"]["reply"]["usage"]["output_tokens"] == 200
    assert "tiny-llama x tiny-skill" in out
    folder = next((tmp_path / "runs").iterdir())
    assert json.loads((folder / "report.json").read_text())["schema_version"] == 1
    rows = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert {row["verdict"] for row in rows} == {"wrong_result", "correct"}
    assert "<html" in (folder / "report.html").read_text()
    kept = next((folder / "trials").rglob("with_skill-*/0"))
    assert {"prompt.json", "reply.json", "project", "build.log", "check.json", "timing.json"} <= {
        p.name for p in kept.iterdir()
    }
    assert run(["show", str(folder), "with_skill-"]) == 0
    shown = capsys.readouterr().out
    assert "Multiply." in shown and "liftbench grade" in shown
    code, _, err = place.run(*words, "--fail-under", "correct=1.5")
    assert code == 3
    assert "threshold missed: --fail-under wanted a lift of correct=1.5, local/tiny-llama x" in err


def test_a_dry_run_shows_arms_and_what_is_left_out(make_place: MakePlace, tmp_path: Path) -> None:
    """Before anything is asked: arms by their texts, combinations, and tasks that a skill was refined on."""
    place = make_place("one", "two")
    place.mark_as_refined(looks=1)
    words = ["-m", "local/m", "--base-url", "http://localhost:1/v1", "--dry-run", "--turns", "3"]
    code, out, err = place.run(*words)
    assert code == 0, err
    assert "up to 3 turns each" in out and "minimum detectable effect" in out
    assert "with_skill  tiny-skill" in out
    assert "left out of comparisons: t/one" in out
    assert "look 2 of lineage abc" in err
    assert "alpha 0.0125" in err
    assert not (tmp_path / "runs").exists()
    other = tmp_path / "other-skill"
    other.mkdir()
    (other / "SKILL.md").write_text("---\nname: other-skill\ndescription: Says else.\n---\n\nDivide.\n")
    _, out, _ = place.run(other, *words, "--combine", "--arms", "placebo")
    assert "2 tasks x 7 arms" in out and "with_skill  tiny-skill + other-skill" in out


@pytest.mark.slow
def test_a_look_is_found_again_and_fresh_replies_are_another(
    make_place: MakePlace, tmp_path: Path, server: Server
) -> None:
    """The same command goes on with its run at its level; --fresh asks anew, and is decided at half of it."""
    url, seen = server
    place = make_place("one", "two")
    place.mark_as_refined(looks=0)
    words = ["-m", "local/m", "--base-url", url, "--tasks", "t/two", "--runs", "1", "--metric", "compiles"]
    told = []
    for further in ([], [], ["--fresh"], []):
        code, _, err = place.run(*words, *further)
        assert code == 0, err
        told.append((re.findall(r"alpha (\S+)", err)[0], len(seen)))
    assert told == [("0.025", 2), ("0.025", 2), ("0.0125", 4), ("0.0125", 4)]
    assert len(list((tmp_path / "runs").glob("*/run.json"))) == 2


@pytest.mark.slow
def test_test_cases_stand_beside_the_grade(make_place: MakePlace, tmp_path: Path, server: Server) -> None:
    """--cases asks a skill's cases too and shows them below the lift; a broken file is told first."""
    url, seen = server
    place = make_place("one")
    cases = tmp_path / "skill_meta.json"
    words = ["-m", "local/m", "--base-url", url, "--runs", "1", "--metric", "compiles", "--cases", cases]
    cases.write_text("{")
    code, _, err = place.run(*words)
    assert code == 2
    assert "skill_meta.json" in err
    assert seen == []
    cases.write_text(json.dumps({"tests": [{"input": "Say it.", "expected": {"contains": ["build.toml"]}}]}))
    code, out, err = place.run(*words)
    assert code == 0, err
    assert len(seen) == 4
    assert out.index("decision (on compiles)") < out.index("the decision rests on `liftbench eval`")


@pytest.mark.slow
def test_an_unreachable_server_ends_an_eval_at_once_and_the_same_command_resumes(
    make_place: MakePlace,
) -> None:
    """No trial is counted, one message says which URL and why, exit 1; with the server it is finished."""
    place = make_place("one")
    with socket.socket() as held:  # bound and not listening: refused
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        words = ["-m", "local/m", "--base-url", url, "--runs", "3", "--metric", "compiles"]
        code, out, err = place.run(*words, "--fail-under", "compiles=-1")
    assert code == 1
    assert err.count("cannot be reached") == 1
    last = f"liftbench: local/m: {url} cannot be reached ([Errno 111] Connection refused). Is the server"
    assert err.splitlines()[-2].startswith(last)
    assert err.splitlines()[-1] == "finished trials are kept, the same command resumes"
    assert "nothing is scored: 0 of 6 trials" in out and "inconclusive" not in out
    assert place.listed() == (0, 0, 6)
    with serving(lambda _: "I cannot.", port):
        code, _, err = place.run(*words)
    assert code == 0, err
    assert place.listed() == (6, 0, 6)


@pytest.mark.parametrize(
    ("status", "said"),
    [(400, "4 x provider"), (401, "the API key was refused (401): no thanks. Check LIFTBENCH_API_KEY")],
)
def test_an_eval_of_which_nothing_is_scored_fails(make_place: MakePlace, status: int, said: str) -> None:
    """Exit 1; a refused key ends it at once, and is told once with the variable that holds the key."""
    place = make_place("one")
    with serving(lambda _: Refusal(status)) as (url, _):
        code, out, err = place.run("-m", "local/m", "--base-url", url, "--runs", "2")
    assert code == 1 and "nothing is scored: 0 of 4 trials" in out
    assert err.count(said) == 1
    assert place.listed() == (0, 4 if status == 400 else 0, 4)


@pytest.mark.slow
def test_lost_trials_are_told_once_with_a_count(make_place: MakePlace) -> None:
    """Some lost: exit 0 and a warning with the reason; a threshold then cannot be met."""
    place = make_place("one")
    with serving(lambda body: Refusal() if has_skill(body) else "I cannot.") as (url, _):
        words = ["-m", "local/m", "--base-url", url, "--runs", "3", "--metric", "compiles"]
        code, out, err = place.run(*words)
        assert code == 0, err
        assert "warning: 3 of 6 trials are lost" in err and "the same command tries them again" in err
        assert "  3 x provider: local/m: the provider refused the request (400): no thanks." in err
        assert err.count("no thanks") == 2  # where it was first seen, and in the warning
        assert "3 trials lost to infra" in out
        assert place.listed() == (3, 3, 6)
        assert place.run(*words, "--fail-under", "compiles=-1")[0] == 3
