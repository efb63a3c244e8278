"""Commands of checks, in real sandboxes and in one that runs nothing."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cases.commands import Commands
from harness.cases.records import Check, CheckOutcome, TestCase
from harness.cases.scoring import score, verdict
from harness.errors import SandboxError, UsageError
from sandboxes.pool import StoppableSandbox
from sandboxes.registry import choose_sandbox
from tests.fakes.sandbox import FakeSandbox, exit_facts

PYTHON = Path(sys.executable)


def command(text: str, wall_s: float = 20.0) -> Check:
    """A check that runs a command."""
    return Check(kind="command", text=text, wall_s=wall_s)


@pytest.fixture
def local(sandbox: StoppableSandbox) -> Commands:
    """Commands as ordinary processes with limits."""
    return Commands(sandbox, PYTHON)


@pytest.fixture(scope="module")
def isolating() -> Iterator[Commands]:
    """Commands in a sandbox that isolates, where this machine has one."""
    try:
        choice = choose_sandbox("bubblewrap,landlock")
    except UsageError as error:
        pytest.skip(f"no sandbox that isolates: {error}")
    yield Commands(choice.sandbox, PYTHON)
    choice.sandbox.close()


def test_a_command_sees_the_cases_files_and_over_them_the_replys(local: Commands) -> None:
    """It runs in their folder, finds `python`, and its status decides."""
    case = TestCase(
        id="c",
        prompt="p",
        files={"check.py": "import data\nassert data.N == 3", "data.py": "N = 1"},
        checks=(command("python check.py"),),
    )
    assert verdict(score(case, "```python data.py\nN = 3\n```", local)) == "passed"
    outcomes = score(case, "```python data.py\nN = 2\n```", local)
    assert verdict(outcomes) == "failed"
    assert "status 1" in outcomes[0].cause and "AssertionError" in outcomes[0].cause


def test_a_slow_command_is_a_failed_check(local: Commands) -> None:
    """It is stopped with what it has put into the background, and raises nothing."""
    outcome = local.run(command("sleep 300 & sleep 300", wall_s=0.4), {})
    assert outcome == CheckOutcome(passed=False, cause="it ran longer than 0.4 s and was stopped")


def test_a_command_that_removes_everything_harms_its_own_copy(local: Commands) -> None:
    """The next one finds the files again."""
    files = {"a/b.txt": "x", "c.txt": "y"}
    assert local.run(command("rm -rf ./* && test ! -e c.txt"), files).passed
    assert local.run(command("test -f a/b.txt && test -f c.txt"), files).passed


def test_keys_are_not_in_a_commands_environment(local: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is scrubbed."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert local.run(command('test -z "$OPENAI_API_KEY"'), {}).passed


def test_marks_of_the_sandbox_mean_nothing_in_a_command(local: Commands) -> None:
    """`{scratch}` and quotes reach the shell as they were written."""
    assert local.run(command("""test '{scratch}"' = '{scratch}'\\" """), {}).passed


def test_an_isolating_sandbox_has_no_network_and_none_of_our_files(
    isolating: Commands, tmp_path: Path
) -> None:
    """A command reaches no server of this machine and removes nothing of ours."""
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o777)
    (precious / "file").write_text("x")
    assert isolating.run(command("test -f a.txt && python -c 'import socket'"), {"a.txt": ""}).passed
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = ("127.0.0.1", server.getsockname()[1])
        call = f"import socket; socket.create_connection({address!r}, 5)"
        outcome = isolating.run(command(f'python -c "{call}"'), {})
        assert outcome.passed is False
        assert "Error" in outcome.cause
        with pytest.raises(BlockingIOError):
            server.accept()
    isolating.run(command(f"rm -rf {precious}; true"), {})
    assert (precious / "file").read_text() == "x"


def test_a_sandbox_that_fails_is_no_failure_of_the_reply() -> None:
    """It raises, and is retried."""
    broken = FakeSandbox(exit_facts("sandbox_error", "no namespaces"))
    with pytest.raises(SandboxError, match="no namespaces"):
        Commands(broken, PYTHON).run(command("true"), {})
    [process] = broken.processes
    assert process.closed


def test_what_a_command_prints_is_cut() -> None:
    """The end of it tells most."""
    facts = exit_facts("nonzero", f"first {'x' * 9000} last", code=2)
    outcome = Commands(FakeSandbox(facts), PYTHON).run(command("false"), {})
    assert outcome.cause.startswith("it ended with status 2: ...") and outcome.cause.endswith("last")
    assert len(outcome.cause) < 400
