"""The command line as a user meets it: help, environment variables, wrong use, pipes and signals."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import __version__
from harness.cli.main import COMMANDS, GROUPS, command_tree, run
from harness.suite.catalogue import all_tasks

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "pydantic", "openai", "anthropic", "docker", "jinja2", "rich", "genai_prices")
OWN_VARIABLES = {"LIFTBENCH_API_KEY", "LIFTBENCH_CACHE_GIB", "LIFTBENCH_HEADERS", "LIFTBENCH_PRICES"}


def _python(code: str) -> str:
    """The last line that a program prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def command_of(words: str) -> Any:
    """The click command of `tasks list` and the like."""
    found = command_tree()
    for word in words.split():
        found = found.get_command(None, word)
    return found


@pytest.mark.parametrize("words", ["", *GROUPS, *COMMANDS])
def test_every_help_fits_a_terminal(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns; the list of commands repeats their first lines, no option the name of its variable."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*words.split(), "-h"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: {' '.join(['liftbench', *words.split()])} ")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "..." not in text.partition("Commands:\n")[2]
    assert "env var" not in text
    assert words or "LIFTBENCH_EVAL_RUNS=5" in " ".join(text.split())
    assert words not in COMMANDS or COMMANDS[words][1] in " ".join(text.split())


def test_help_imports_nothing_heavy() -> None:
    """--help is fast because no command, no SDK, no torch, pydantic or rich is imported for it."""
    code = "import sys\nfrom harness.cli.main import run\nrun(['--help'])\nprint(sorted(set(sys.modules)))"
    loaded = set(ast.literal_eval(_python(code)))
    assert not loaded & set(HEAVY)
    ours = {name for name in loaded if name.startswith(("harness.", "sandboxes"))}
    assert ours == {"harness.cli", "harness.cli.main", "harness.errors", "harness.outcome", "harness.text"}


@pytest.mark.parametrize(
    "words", ["runs", "plan", "tasks list", "skills check", "cases run", "build", "eval", "generate"]
)
def test_a_command_that_grades_nothing_imports_no_torch(words: str) -> None:
    """Nor an SDK, which is imported when a model is made."""
    code = (
        "import sys\n"
        "from harness.cli.main import run\n"
        f"run([*{words.split()}, '--help'])\n"
        "print([name for name in ('torch', 'openai', 'anthropic', 'docker') if name in sys.modules])"
    )
    assert _python(code) == "[]"


def test_every_option_is_a_variable_of_the_same_name() -> None:
    """The long flag in capitals after the command's words; no two are equal, none is another variable's."""
    found = []
    for words in COMMANDS:
        for option in command_of(words).params:
            flag = next((name for name in option.opts if name.startswith("--")), "--help")
            if flag == "--help":  # or an argument
                continue
            expected = (
                "_".join(["LIFTBENCH", *words.split(), flag.removeprefix("--")]).replace("-", "_").upper()
            )
            assert option.envvar == expected
            found.append(expected)
    assert len(found) == len(set(found))
    assert not OWN_VARIABLES & set(found)


@pytest.mark.parametrize(
    ("words", "variable", "given", "name", "expected"),
    [
        ("eval", "LIFTBENCH_EVAL_RUNS", "7", "repeats", 7),
        ("eval", "LIFTBENCH_EVAL_DRY_RUN", "1", "dry_run", True),
        ("eval", "LIFTBENCH_EVAL_TASKS", "l1/* l2/*", "tasks", ["l1/*", "l2/*"]),
        ("generate", "LIFTBENCH_GENERATE_FROM", "trace.md", "source", Path("trace.md")),
        ("tasks list", "LIFTBENCH_TASKS_LIST_JSON", "1", "json_output", True),
    ],
)
def test_a_variable_arrives_in_the_command(
    words: str, variable: str, given: str, name: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, flags, choices, repeatable options, and options of groups."""
    monkeypatch.setenv(variable, given)
    needed = {"eval": ["s", "-m", "a/b"], "generate": ["t", "--teacher", "a/b"]}.get(words, [])
    context = command_of(words).make_context(words, list(needed))
    found = context.params[name]
    assert (list(found) if isinstance(expected, list) else found) in (expected, str(expected))


def test_a_wrong_value_from_the_environment_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flag alone would send the reader to a command line that does not have it."""
    monkeypatch.setenv("LIFTBENCH_EVAL_RUNS", "many")
    assert run(["eval", "some", "-m", "openai/x"]) == 2
    text = capsys.readouterr().err
    assert "--runs" in text and "LIFTBENCH_EVAL_RUNS is set in the environment" in text


GRADE = ["grade", "kernels_ref/l1/rms_norm", "--task"]
URL = "https://hf.co/a"
SKILL = "cuda-kernel-builder"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grade", "nowhere", "--task", "l1/rms_norm"], "no build.toml"),
        ([*GRADE, "nope"], "no task matches 'nope'"),
        ([*GRADE, "l1/rms_norm", "--target", "cpu", "--sanitize"], "compute-sanitizer is for CUDA"),
        ([*GRADE, "l1/rms_norm", "--seed", "0x12"], "--seed 0x12: a seed has 64 of the digits"),
        ([*GRADE, "rms_norm", "--target", "tpu"], "'cuda', 'cpu'"),
        ([*GRADE, "rms_norm", "--sandbox", "podman"], "is no sandbox"),
        (["eval", "no-such-skill", "-m", "openai/x"], "no skill"),
        (["eval", SKILL, "-m", "gpt"], "provider/model"),
        (["eval", SKILL, "-m", "openai/x"], "OPENAI_API_KEY"),
        (["eval", SKILL, "-m", "a/b", "-m", "a/b"], "named twice"),
        # A provider's key must never reach a server that was meant for another model.
        (["eval", SKILL, "-m", "openai/a", "-m", "anthropic/b", "--base-url", "http://h/v1"], "--base-url"),
        (["eval", SKILL, "-m", "openai/x", "--fail-under", "joy=3"], "--fail-under"),
        (["eval", SKILL, "-m", "openai/x", "--arms", "joy"], "write placebo, old=DIR"),
        (["eval", SKILL], "--model"),
        (["show", "nope", "x"], "no run"),
        (["eval", URL, "-m", "openai/x"], f"{URL} is a URL"),
        (["skills", "list", URL], f"{URL} is a URL"),
        (["build", URL], f"{URL} is a URL"),
        (["generate", "x", "--teacher", "openai/x", "--from", URL], f"{URL} is a URL"),
        (["tasks", "list", "--tasks-root", "nowhere"], "nowhere is no folder"),
        (["task"], "Did you mean 'tasks'"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_do(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, one message on stderr, and no run folder."""
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(ROOT)
    runs = ["--runs-dir", str(tmp_path / "runs")] if words[0] in ("eval", "show", "generate") else []
    assert run([*words, *runs]) == 2
    text = capsys.readouterr().err
    assert message in " ".join(text.split())
    assert "Traceback" not in text
    assert not (tmp_path / "runs").exists()


def test_version_and_an_empty_folder_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stdout; no run is no error."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"liftbench {__version__}\n"
    assert run(["runs", "--runs-dir", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out


def test_tasks_are_listed_and_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tasks list` names them all, ids and figures whole; `tasks show` prints what the student reads."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["tasks", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{t.task.id} " in listed for t in all_tasks())
    assert all("…" not in line[:66] for line in listed.splitlines())
    assert run(["tasks", "show", "l1/rms_norm", "--target", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# Task: RMS norm") and "edition" not in shown
    assert run(["tasks", "show", "l1/rms_norm", "--briefing", "full"]) == 0
    assert "`build.toml` edition 5" in capsys.readouterr().out


@pytest.mark.slow
def test_doctor_never_prints_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are present or absent; their values are not shown."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert run(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    found = {item["name"]: item["found"] for item in json.loads(out)["items"]}
    assert (found["OPENAI_API_KEY"], found["ANTHROPIC_API_KEY"]) == ("present", None)
    assert "sk-very-secret" not in out + err
    assert run(["doctor"]) == 0 and "what this allows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "out", "err"),
    [
        # As in `... | head`: exit code 141, as a shell reports of `yes | head`, and nothing on stderr.
        ("$LIFTBENCH tasks list --json | true; echo ${PIPESTATUS[0]}", "141", ""),
        # A reader of errors that leaves: the message is lost, the code is not.
        ("$LIFTBENCH tasks show nope 2>&1 >&- | true; echo ${PIPESTATUS[0]}", "2", ""),
        # A full disk is no broken pipe.
        ("$LIFTBENCH tasks list --json > /dev/full; echo $?", "1", "No space left on device"),
    ],
)
def test_output_that_nobody_reads_or_no_disk_takes(script: str, out: str, err: str) -> None:
    """The exit code tells them apart, without a traceback."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/tmp"}
    environment["LIFTBENCH"] = f"{sys.executable} -m harness.cli.main"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{out}\n"
    assert err in done.stderr if err else not done.stderr
    assert "Traceback" not in done.stderr


def test_signals_end_a_command_as_ctrl_c_does_unless_they_are_ignored() -> None:
    """SIGTERM raises KeyboardInterrupt and is remembered; SIGHUP, ignored as under nohup, stays ignored."""
    code = (
        "import signal\n"
        "from harness.cli.main import _end_on_signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "received = _end_on_signals()\n"
        "signal.raise_signal(signal.SIGHUP)\n"
        "try:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n"
        "    print(*(one.name for one in received))\n"
    )
    assert _python(code) == "SIGTERM"
