"""What each check means for a reply, commands in sandboxes, and what passing a case proves."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases.schema import Check, CheckOutcome, TestCase
from harness.cases.scoring import (
    ALREADY_FAILED,
    NO_SANDBOX,
    REFUSAL,
    Commands,
    occurs,
    overlaid,
    reply_files,
    score,
    sentence,
    verdict,
    worth_of,
)
from harness.errors import SandboxError, UsageError
from harness.files import write_files
from sandboxes.pool import SandboxPool
from sandboxes.registry import choose_sandbox
from tests.fakes.sandbox import FakeSandbox, exit_facts

PYTHON = Path(sys.executable)
REPLY = 'Use SM_90a.\n\n```json out/report.json\n{"Ok": true}\n```\n'


def case(*checks: Check, **fields: object) -> TestCase:
    """A case with these checks."""
    return TestCase(**{"id": "c", "prompt": "p", "checks": checks, **fields})


def contains(*texts: str) -> tuple[Check, ...]:
    return tuple(Check(kind="contains", text=text) for text in texts)


def command(text: str, wall_s: float = 20.0) -> Check:
    return Check(kind="command", text=text, wall_s=wall_s)


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        (Check(kind="contains", text="sm_90A"), True),
        (Check(kind="contains", text="sm_80"), False),
        (Check(kind="regex", text=r"^Use SM_\d+a"), True),
        (Check(kind="regex", text=r"^use"), False),
        (Check(kind="file_exists", path="out/report.json"), True),
        (Check(kind="file_exists", path="./out"), True),
        (Check(kind="file_exists", path="report.json"), False),
        (Check(kind="file_contains", path="out/report.json", text='"ok"'), True),
        (Check(kind="file_contains", path="out/report.json", text="SM_90a"), False),
        (Check(kind="file_contains", path="out", text="ok"), False),
    ],
)
def test_checks_of_the_reply_alone(check: Check, passed: bool) -> None:
    """Texts without regard to letter case, as upskill compares; expressions as they stand; files by path."""
    [outcome] = score(case(check), REPLY, None)
    assert outcome.passed is passed
    assert bool(outcome.cause) is not passed


def test_a_case_is_passed_when_all_of_it_is() -> None:
    """One failure fails it; without checks nothing is known; without a sandbox a command is not run."""
    good, bad = contains("use", "never")
    assert verdict(score(case(good, good), REPLY, None)) == "passed"
    assert verdict(score(case(good, bad), REPLY, None)) == "failed"
    assert verdict(score(case(), REPLY, None)) == "not_run"
    outcomes = score(case(command("true"), good), REPLY, None)
    assert [one.passed for one in outcomes] == [None, True]
    assert outcomes[0].cause == NO_SANDBOX and verdict(outcomes) == "not_run"
    outcomes = score(case(command("true"), bad), REPLY, None)
    assert outcomes[0].cause == ALREADY_FAILED and verdict(outcomes) == "failed"


def test_an_expression_that_never_ends_is_a_failure() -> None:
    """It is stopped, and says so."""
    assert occurs("(a+)+$", "a" * 40 + "b", wall_s=0.3) == "the search took longer than 0.3 s"
    assert occurs("b$", "ab\ncd") is True


@pytest.fixture
def local(sandbox: SandboxPool) -> Commands:
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
    """It runs in their folder, finds `python`, and its status decides; a slow one is stopped."""
    files = {"check.py": "import data\nassert data.N == 3", "data.py": "N = 1"}
    tried = case(command("python check.py"), files=files)
    assert verdict(score(tried, "```python data.py\nN = 3\n```", local)) == "passed"
    outcomes = score(tried, "```python data.py\nN = 2\n```", local)
    assert verdict(outcomes) == "failed"
    assert "status 1" in outcomes[0].cause and "AssertionError" in outcomes[0].cause
    slow = local.run(command("sleep 300 & sleep 300", wall_s=0.4), {})
    assert slow == CheckOutcome(passed=False, cause="it ran longer than 0.4 s and was stopped")


def test_a_command_works_on_its_own_copy_without_keys(
    local: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it removes is there for the next; the environment is scrubbed; placeholders mean nothing."""
    files = {"a/b.txt": "x", "c.txt": "y"}
    assert local.run(command("rm -rf ./* && test ! -e c.txt"), files).passed
    assert local.run(command("test -f a/b.txt && test -f c.txt"), files).passed
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert local.run(command('test -z "$OPENAI_API_KEY"'), {}).passed
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


def test_a_failing_sandbox_raises_and_long_output_is_cut() -> None:
    """A sandbox's failure is not the reply's; of what a command prints the end is shown."""
    broken = FakeSandbox(exit_facts("sandbox_error", "no namespaces"))
    with pytest.raises(SandboxError, match="no namespaces"):
        Commands(broken, PYTHON).run(command("true"), {})
    [process] = broken.processes
    assert process.closed
    facts = exit_facts("nonzero", f"first {'x' * 9000} last", code=2)
    outcome = Commands(FakeSandbox(facts), PYTHON).run(command("false"), {})
    assert outcome.cause.startswith("it ended with status 2: ...") and outcome.cause.endswith("last")
    assert len(outcome.cause) < 400


FILES = {"in.csv": "a,b", "odd`name.md": "```\nx\n```"}
VAIN = {
    "an echo of the prompt": case(*contains("fix", "bug"), prompt="Fix the bug"),
    "an echo of the prompt and its files": case(
        Check(kind="file_contains", path="in.csv", text="b"), files=FILES
    ),
    "the empty answer": case(Check(kind="regex", text="^$")),
    "a refusal": case(*contains("help", "request")),
}


def test_a_case_that_a_trivial_answer_passes_is_worthless() -> None:
    """It says which one; one sentence counts by reason."""
    worths = [worth_of(one, None) for one in VAIN.values()]
    assert [(one.worth, one.passed_by) for one in worths] == [("none", name) for name in VAIN]
    assert all(name in one.why for name, one in zip(VAIN, worths, strict=True))
    told = sentence([*worths, worth_of(case(), None)])
    assert told.startswith("5 of 5 cases prove nothing: an echo of the prompt passes 1")
    assert told.endswith("nothing is checked in 1")
    assert sentence([]) == "0 of 0 cases prove nothing: no trivial answer passes one"


def test_a_case_is_worth_something_if_no_trivial_answer_passes_it(sandbox: SandboxPool) -> None:
    """Nothing checked is worthless; a command's worth needs a sandbox unless other checks decide."""
    assert worth_of(case(not_checkable=("It is nice",)), None).why == "worthless: nothing is checked"
    assert "sm_90" not in REFUSAL
    assert worth_of(case(*contains("sm_90"), prompt="Which GPU?"), None).worth == "some"
    check = command("test -f out.txt || test ! -e in.txt")
    assert worth_of(case(check), None).worth == "unknown"
    assert worth_of(case(check, *contains("sm_90")), None).worth == "some"
    commands = Commands(sandbox, PYTHON)
    assert worth_of(case(check), commands).worth == "none"
    assert worth_of(case(check, files={"in.txt": ""}), commands).worth == "some"


def block(info: str, text: str = "x", above: str = "") -> str:
    """A fenced block."""
    return f"{above}\n```{info}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("reply", "path"),
    [
        (block("json data/report.json"), "data/report.json"),
        (block("json", above="Here is `report.json`:"), "report.json"),
        (block("sh", text="# run.sh\necho"), "run.sh"),
        (block("json", above="Compare a.json with b.json."), None),
    ],
)
def test_a_block_names_its_file(reply: str, path: str | None) -> None:
    """In the info string, in the line above, or in its first comment; a language or prose names none."""
    assert list(reply_files(reply)[0]) == ([] if path is None else [path])


def test_a_wanted_path_counts_however_it_looks() -> None:
    """A check may ask for a file without a suffix, or with a space."""
    reply = block("text my notes") + block("", above="`LICENSE2`")
    assert list(reply_files(reply, ["my notes", "LICENSE2"])[0]) == ["my notes", "LICENSE2"]


@pytest.mark.parametrize("path", ["/etc/passwd.txt", "../up.txt", "~/x.txt", "a\\b.txt", f"{'x' * 300}.txt"])
def test_an_unsafe_path_is_left_out_with_its_reason(path: str) -> None:
    """The other files stay."""
    files, left_out = reply_files(block(path) + block("ok.txt"))
    assert (list(files), list(left_out)) == (["ok.txt"], [path])


def test_files_that_conflict_are_resolved_and_floods_are_cut() -> None:
    """A file is no folder too, and a check says so; later blocks replace earlier ones and own files."""
    reply = block("a.d/b.txt") + block("a.d")
    assert list(reply_files(reply)[0]) == ["a.d/b.txt"]
    [outcome] = score(case(Check(kind="file_contains", path="a.d", text="x")), reply, None)
    assert "a folder at once" in outcome.cause
    assert reply_files(block("a.txt", "1") + block("a.txt", "2"))[0] == {"a.txt": "2\n"}
    above = {"a": "new", "c/x": "new", "d": "new"}
    assert overlaid({"a/b": "old", "c": "old", "d": "old", "e": "kept"}, above) == {"e": "kept", **above}
    files, left_out = reply_files("".join(block(f"f{i}.txt") for i in range(100)))
    assert (len(files), len(left_out)) == (64, 36)
    assert reply_files(block("a.txt", "x" * (1 << 20)) + block("b.txt"))[0] == {}


PIECES = [
    "```",
    "```x a.txt",
    "# a/b.c",
    "`a.txt`",
    "~~~ ../x.y",
    "```a.d/b",
    "```a.d",
    "```a.d/b/c.e",
    "```//",
]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=30), max_size=30).map("\n".join))
def test_files_of_any_reply_can_be_written(reply: str) -> None:
    """Inside the folder, each under its own path."""
    files, _ = reply_files(reply, ["a.d", "b"])
    with tempfile.TemporaryDirectory() as name:
        write_files(files, Path(name) / "in")
        written = {path.relative_to(name).as_posix() for path in Path(name).rglob("*") if path.is_file()}
    assert written == {f"in/{path}" for path in files}
