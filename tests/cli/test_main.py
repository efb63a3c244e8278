"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.suite.catalogue import all_tasks

ROOT = Path(__file__).resolve().parents[2]


def liftbench(*words: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with no keys in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *map(str, words)],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "100", "HOME": "/tmp"}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_signals_end_a_command_as_ctrl_c_does_unless_they_are_ignored() -> None:
    """SIGTERM raises KeyboardInterrupt and is remembered; SIGHUP, ignored as under nohup, stays ignored."""
    code = (
        "import signal\n"
        "from harness.cli.main import _end_on_signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "came = _end_on_signals()\n"
        "signal.raise_signal(signal.SIGHUP)\n"
        "try:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "except KeyboardInterrupt:\n"
        "    print(*(one.name for one in came))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "SIGTERM"


def test_help_loads_nothing_heavy() -> None:
    """--help stays fast because torch, pydantic, rich, the SDKs and docker are not imported for it."""
    code = (
        "import sys\n"
        "from harness.cli.main import command_tree\n"
        "command_tree().main(['--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'openai', 'anthropic', 'docker', 'jinja2', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grade", "nowhere", "--task", "l1/rms_norm"], "no build.toml"),
        (["grade", "kernels_ref/l1/rms_norm", "--task", "nope"], "no task matches 'nope'"),
        (["grade", "kernels_ref/l1/rms_norm", "--task", "l1/*"], "name one"),
        (
            ["grade", "kernels_ref/l1/rms_norm", "--task", "l1/rms_norm", "--target", "cpu", "--sanitize"],
            "compute-sanitizer is for CUDA",
        ),
        (["grade", "kernels_ref/l1/rms_norm", "--task", "rms_norm", "--target", "tpu"], "cuda and cpu"),
        (["grade", "kernels_ref/l1/rms_norm", "--task", "rms_norm", "--sandbox", "podman"], "is no sandbox"),
        (["eval", "no-such-skill", "-m", "openai/x"], "no skill"),
        (["eval", "cuda-kernel-builder", "-m", "gpt"], "provider/model"),
        (["eval", "cuda-kernel-builder", "-m", "openai/x"], "OPENAI_API_KEY"),
        (["eval", "cuda-kernel-builder", "-m", "nobody/x"], "unknown provider"),
        (["eval", "cuda-kernel-builder", "-m", "openai/x", "--fail-under", "joy=3"], "--fail-under"),
        (["eval", "cuda-kernel-builder", "-m", "openai/x", "--metric", "joy"], "--metric"),
        (["show", "nope", "x"], "no run"),
        (["eval", "https://hf.co/a", "-m", "openai/x"], "https://hf.co/a is a URL"),
        (["eval", "some", "-m", "openai/x", "--arms", "old=https://hf.co/a"], "https://hf.co/a is a URL"),
        (["skills", "install", "https://hf.co/a", "--claude"], "https://hf.co/a is a URL"),
        (["skills", "list", "https://hf.co/a"], "https://hf.co/a is a URL"),
        (["cases", "check", "https://hf.co/a"], "https://hf.co/a is a URL"),
        (["build", "https://hf.co/a"], "https://hf.co/a is a URL"),
        (["generate", "x", "--teacher", "openai/x", "--from", "https://hf.co/a"], "https://hf.co/a is a URL"),
        (["tasks", "list", "kernelbench:https://hf.co/a"], "https://hf.co/a is a URL"),
        (["tasks", "list", "--tasks-root", "https://hf.co/a"], "https://hf.co/a is a URL"),
        (["tasks", "list", "--tasks-root", "nowhere"], "nowhere is no folder"),
        (["eval", "cuda-kernel-builder"], "--model"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_do(words: list[str], said: str, tmp_path: Path) -> None:
    """Exit code 2, one message on stderr, no traceback, and no run folder."""
    runs = ["--runs-dir", str(tmp_path / "runs")] if words[0] in ("eval", "show") else []
    done = liftbench(*words, *runs)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split()).replace("│ ", "")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_no_key_is_wanted_for_a_server_of_ones_own(tmp_path: Path) -> None:
    """--base-url with a foreign provider gets as far as the dry run without any key."""
    done = liftbench(
        *("eval", "cuda-kernel-builder", "-m", "local/llama", "--base-url", "http://localhost:1/v1"),
        *("--limit", "6", "--dry-run", "--runs-dir", tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "60 trials" in done.stdout
    assert "minimum detectable effect" in done.stdout


def test_a_base_url_never_gets_another_providers_key(tmp_path: Path) -> None:
    """Two models of known providers and one base URL: refused, since a key could leak."""
    done = liftbench(
        *("eval", "cuda-kernel-builder", "-m", "openai/a", "-m", "anthropic/b"),
        *("--base-url", "http://localhost:1/v1", "--runs-dir", tmp_path),
    )
    assert done.returncode == 2
    assert "--base-url" in done.stderr


def test_tasks_are_listed_and_shown() -> None:
    """`tasks list` names them all, ids and figures whole; `tasks show` prints what the student reads."""
    listed = liftbench("tasks", "list", COLUMNS="80").stdout
    assert all(f"{t.task.id} " in listed for t in all_tasks())
    assert all("…" not in line[:66] for line in listed.splitlines())
    shown = liftbench("tasks", "show", "l1/rms_norm", "--target", "cpu")
    assert shown.stdout.startswith("# Task: RMS norm")


def test_doctor_never_prints_a_key() -> None:
    """Keys are present or absent; their values stay unread."""
    done = liftbench("doctor", "--json", OPENAI_API_KEY="sk-very-secret")
    assert done.returncode == 0, done.stderr
    found = {item["name"]: item["found"] for item in json.loads(done.stdout)["items"]}
    assert found["OPENAI_API_KEY"] == "present"
    assert found["ANTHROPIC_API_KEY"] is None
    assert "sk-very-secret" not in done.stdout + done.stderr
    assert "sk-very-secret" not in liftbench("doctor", OPENAI_API_KEY="sk-very-secret").stdout


def test_the_shipped_skill_is_listed_and_valid() -> None:
    """`skills list` and `skills check` know the shipped skill (without building here)."""
    assert "cuda-kernel-builder" in liftbench("skills", "list").stdout
    done = liftbench("skills", "check", "cuda-kernel-builder", "--no-build")
    assert done.returncode == 0, done.stdout
    assert "cuda-kernel-builder: ok" in done.stdout


def test_no_runs_is_said_kindly(tmp_path: Path) -> None:
    """An empty folder is no error."""
    done = liftbench("runs", "--runs-dir", tmp_path)
    assert done.returncode == 0
    assert "no runs" in done.stdout
