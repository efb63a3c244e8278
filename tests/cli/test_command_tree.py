"""Every command and every option: help, names of environment variables, and pipes that nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import __version__
from harness.cli.main import command_tree, commands_below

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = dict(commands_below(command_tree()))
GROUPS = sorted({path[:-1] for path in COMMANDS})
OWN_VARIABLES = {"LIFTBENCH_API_KEY", "LIFTBENCH_CACHE_GIB", "LIFTBENCH_HEADERS", "LIFTBENCH_PRICES"}


def _options(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option" and "--help" not in one.opts]


def _said(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert command_tree().main([*words, "--help"], prog_name="liftbench", standalone_mode=False) in (0, None)
    return capsys.readouterr().out


@pytest.mark.parametrize("path", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_help_fits_a_terminal_and_cuts_nothing(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns; no sentence ends in dots, and no option repeats the name of its variable."""
    monkeypatch.setenv("COLUMNS", "80")
    said = _said(*path, capsys=capsys)
    assert said.startswith(f"Usage: {' '.join(['liftbench', *path])} ")
    assert max(len(line) for line in said.splitlines()) <= 80
    listed = said.partition("Commands:\n")[2]
    assert "..." not in listed
    assert "env var" not in said


def test_the_rule_for_variables_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """With an example that is right."""
    assert "LIFTBENCH_EVAL_RUNS=5" in " ".join(_said(capsys=capsys).split())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_is_a_variable_of_the_same_name(path: tuple[str, ...]) -> None:
    """The long flag in capitals after the command's words; what it holds arrives in the command."""
    command = COMMANDS[path]
    arguments = ["word" for one in command.params if one.param_type_name == "argument" and one.required]
    for option in _options(command):
        flag = next(name for name in option.opts if name.startswith("--"))
        variable = "_".join(["LIFTBENCH", *path, *flag.removeprefix("--").split("-")]).upper()
        given = str(not option.default) if option.is_flag else "7"
        needed = [one for one in _options(command) if one.required and one is not option]
        words = [word for one in needed for word in (one.opts[0], "word")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, given)
            context = command.make_context(path[-1], [*words, *arguments])
        assert context.get_parameter_source(option.name).name == "ENVIRONMENT", variable
        found = context.params[option.name]
        assert str(found[0] if isinstance(found, list | tuple) else found) in (given, f"{given}.0")


def test_no_two_options_share_a_variable() -> None:
    """Nor does one shadow the variables that are no options."""
    names = [option.envvar for command in COMMANDS.values() for option in _options(command)]
    assert len(names) == len(set(names))
    assert not OWN_VARIABLES & set(names)


def _shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`$LIFTBENCH` is the command."""
    return subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": "/tmp",
            "LIFTBENCH": f"{sys.executable} -m harness.cli.main",
        }
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", ["tasks list --json", "tasks list", "eval --help"])
def test_a_reader_that_leaves_is_no_error(words: str) -> None:
    """As in `... | head`: exit code 141, as a shell reports of `yes | head`, and nothing on stderr."""
    done = _shell(f"$LIFTBENCH {words} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_reader_of_errors_that_leaves_changes_no_exit_code() -> None:
    """The message is lost, the code is not."""
    done = _shell("$LIFTBENCH tasks show nope 2>&1 >&- | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_output_that_cannot_be_written_is_our_failure() -> None:
    """A full disk is no broken pipe."""
    done = _shell("$LIFTBENCH tasks list --json > /dev/full")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_printed() -> None:
    """`--version`: one line on stdout."""
    done = _shell("$LIFTBENCH --version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"liftbench {__version__}\n", "")


def test_a_wrong_value_from_the_environment_names_its_variable() -> None:
    """The flag alone would send the reader to a command line that does not have it."""
    done = _shell("$LIFTBENCH eval some -m openai/x", LIFTBENCH_EVAL_RUNS="many")
    assert done.returncode == 2
    assert "--runs" in done.stderr
    assert "LIFTBENCH_EVAL_RUNS is set in the environment" in done.stderr
