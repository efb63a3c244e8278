"""`liftbench eval`, whole: in a process of its own, on tasks that take seconds."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.tiny import project_reply, record, write_skill, write_tasks

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("toolchain")


class Place:
    """A folder with tasks, a skill, runs and a cache, and the command that uses them."""

    def __init__(self, root: Path, names: tuple[str, ...]) -> None:
        self.root = root
        self.tasks = write_tasks(root, names)
        self.skill = write_skill(root)

    def command(self, *words: str | Path) -> list[str]:
        own = ["--tasks-root", self.tasks, "--runs-dir", self.root / "runs", "--cache", self.root / "cache"]
        start = [sys.executable, "-m", "harness.cli.main", "eval", self.skill, "--target", "cpu"]
        return [str(word) for word in (*start, *own, "--sandbox", "local", *words)]

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            cwd=ROOT,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
                "COLUMNS": "100",
                "XDG_DATA_HOME": str(self.root / "data"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str | Path) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The whole lines of trials.jsonl of the only run."""
        files = list((self.root / "runs").glob("*/trials.jsonl"))
        if not files:
            return []
        lines = files[0].read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


def _wait_for(place: Place, trials: int, process: subprocess.Popen[str]) -> None:
    while len(place.finished) < trials:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interrupted_eval_is_finished_by_the_same_command(
    tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """No end loses a finished trial; Ctrl-C and SIGTERM give a summary and the way to resume."""
    place = Place(tmp_path, ("one", "two", "three"))
    recording = record(tmp_path, place.tasks, place.skill, 8, "```toml build.toml\nbroken\n```\n")
    words = ["-m", f"replay/{recording}", "--runs", "8", "--max-connections", "1"]
    process = place.start(*words)
    _wait_for(place, 3, process)
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


def test_a_wall_budget_ends_cleanly_and_says_what_is_owed(tmp_path: Path) -> None:
    """--max-wall stops the run with exit code 0, a table, and the rest owed."""
    place = Place(tmp_path, ("one", "two"))
    recording = record(tmp_path, place.tasks, place.skill, 200, "```toml build.toml\nbroken\n```\n")
    words = ["-m", f"replay/{recording}", "--runs", "200", "--max-connections", "1", "--max-wall", "12"]
    code, out, err = place.run(*words)
    assert code == 0, err
    assert "time budget" in err
    assert "planned trials not measured yet: resume to finish" in " ".join(out.split())
    assert len(place.finished) < 800


def test_a_changed_prompt_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A recording answers the prompts that were recorded and no others."""
    place = Place(tmp_path, ("one",))
    recording = record(tmp_path, place.tasks, place.skill, 1, "x")
    path = place.tasks / "t" / "one" / "task.toml"
    path.write_text(path.read_text().replace("out = 2 * x", "out = 3 * x"))
    code, _, err = place.run("-m", f"replay/{recording}", "--runs", "1")
    assert code == 2
    assert "frozen copies" in " ".join(err.split())


class _Server(BaseHTTPRequestHandler):
    """Speaks enough of the chat completions API."""

    seen: list[dict[str, Any]] = []  # noqa: RUF012 - one per server class, made in the fixture

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen.append({"authorization": self.headers["Authorization"], **body})
        with_skill = "<skill" in body["messages"][-1]["content"]
        text = project_reply("one", "2.0f" if with_skill else "3.0f")
        answer = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny-llama",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            ],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its base URL, and the requests that it saw."""
    handler = type("Handler", (_Server,), {"seen": []})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}/v1", handler.seen
    httpd.shutdown()
    httpd.server_close()


@pytest.mark.slow
def test_an_eval_against_a_local_server_is_real_from_prompt_to_report(
    tmp_path: Path, server: tuple[str, list[dict[str, Any]]]
) -> None:
    """A server of one's own, no key: built, checked, timed, and reported in every format."""
    pytest.importorskip("openai", reason="needs openai (pip install openai)")
    url, seen = server
    place = Place(tmp_path, ("one",))
    words = ["-m", "local/tiny-llama", "--base-url", url, "--runs", "1", "--metric", "correct"]
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
    shown = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", "show", str(folder), "with_skill-"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Multiply." in shown.stdout
    assert "liftbench grade" in shown.stdout
    code, _, err = place.run(*words, "--fail-under", "correct=1.5")
    assert code == 3
    assert "threshold missed: --fail-under wanted a lift of correct=1.5, local/tiny-llama x" in err


def test_several_skills_with_placebos_and_combinations_are_arms_of_one_run(
    tmp_path: Path, server: tuple[str, list[dict[str, Any]]]
) -> None:
    """Two skills, --combine, --arms placebo: seven arms that differ in the skill text alone, side by side."""
    pytest.importorskip("openai", reason="needs openai (pip install openai)")
    url, seen = server
    place = Place(tmp_path, ("one",))
    other = tmp_path / "other-skill"
    other.mkdir()
    (other / "SKILL.md").write_text("---\nname: other-skill\ndescription: Says else.\n---\n\nDivide.\n")
    words = [other, "-m", "local/m", "--base-url", url, "--runs", "1", "--metric", "compiles"]
    code, out, err = place.run(*words, "--combine", "--arms", "placebo", "--max-connections", "1")
    assert code == 0, err
    assert [t["key"]["arm"].partition("-")[0] for t in place.finished].count("placebo") == 3
    assert len(seen) == 7
    systems = {body["messages"][0]["content"] for body in seen}
    assert len(systems) == 1
    bare = [body for body in seen if "<skill" not in body["messages"][-1]["content"]]
    [task] = [body["messages"][-1]["content"] for body in bare]
    assert all(body["messages"][-1]["content"].endswith(task) for body in seen)
    assert sum(body["messages"][-1]["content"].count("<skill name=") for body in seen) == 8
    assert "tiny-skill + other-skill" in out


def test_a_budget_of_calls_ends_cleanly_and_the_same_command_goes_on(
    tmp_path: Path, server: tuple[str, list[dict[str, Any]]]
) -> None:
    """--max-calls 1: one trial finished, one owed, exit code 0; without it only the rest is asked."""
    pytest.importorskip("openai", reason="needs openai (pip install openai)")
    url, seen = server
    place = Place(tmp_path, ("one",))
    words = [
        "-m",
        "local/m",
        "--base-url",
        url,
        "--runs",
        "1",
        "--metric",
        "compiles",
        "--max-connections",
        "1",
    ]
    code, _, err = place.run(*words, "--max-calls", "1")
    assert code == 0, err
    assert "call budget" in err
    assert "1 trials are owed" in err
    assert len(seen) == len(place.finished) == 1
    code, _, err = place.run(*words)
    assert code == 0, err
    assert len(seen) == len(place.finished) == 2


def test_a_dry_run_shows_arms_and_what_is_left_out(tmp_path: Path) -> None:
    """Before anything is asked: every arm by its texts, and tasks that the skill was refined on."""
    place = Place(tmp_path, ("one", "two"))
    skill = place.skill / "SKILL.md"
    marks = 'metadata:\n  liftbench-lineage: "abc"\n  liftbench-refined-on: "one"\n  liftbench-looks: "1"\n'
    skill.write_text(skill.read_text().replace("description", f"{marks}description"))
    code, out, err = place.run(
        "-m", "local/m", "--base-url", "http://localhost:1/v1", "--dry-run", "--turns", "3"
    )
    assert code == 0, err
    assert "up to 3 turns each" in out
    assert "with_skill  tiny-skill" in out
    assert "left out of comparisons: t/one" in out
    assert "look 2 of lineage abc" in err
    assert "alpha 0.0125" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_look_is_found_again_and_fresh_replies_are_another(
    tmp_path: Path, server: tuple[str, list[dict[str, Any]]]
) -> None:
    """The same command goes on with its run at its level; --fresh asks anew, and is decided at half of it."""
    pytest.importorskip("openai", reason="needs openai (pip install openai)")
    url, seen = server
    place = Place(tmp_path, ("one", "two"))
    skill = place.skill / "SKILL.md"
    marks = 'metadata:\n  liftbench-lineage: "abc"\n  liftbench-refined-on: "one"\n  liftbench-looks: "0"\n'
    skill.write_text(skill.read_text().replace("description", f"{marks}description"))
    words = ["-m", "local/m", "--base-url", url, "--tasks", "t/two", "--runs", "1", "--metric", "compiles"]
    told = []
    for further in ([], [], ["--fresh"], []):
        code, _, err = place.run(*words, *further)
        assert code == 0, err
        told.append((re.findall(r"alpha (\S+)", err)[0], len(seen)))
    assert told == [("0.025", 2), ("0.025", 2), ("0.0125", 4), ("0.0125", 4)]
    assert len(list((tmp_path / "runs").glob("*/run.json"))) == 2


def test_test_cases_stand_beside_the_grade(tmp_path: Path, server: tuple[str, list[dict[str, Any]]]) -> None:
    """--cases asks a skill's cases too and shows them below the lift; a broken file is told first."""
    pytest.importorskip("openai", reason="needs openai (pip install openai)")
    url, seen = server
    place = Place(tmp_path, ("one",))
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
