"""What a student prints, on its way to a person's terminal."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from harness.cli.card import diagnostic_lines, print_build, print_card, untrusted
from harness.outcome import Cause
from harness.records import BuildResult, Diagnostic, Finding
from harness.text import message_of
from sandboxes.job import Job, Limits
from sandboxes.registry import open_sandbox
from tests.fakes.trials import grade
from tools.attacks.catalogue import FOLDER

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the sandbox reports of a program that prints escape sequences and broken UTF-8."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: attacks are compiled here (apt-get install gcc)")
    program = tmp_path_factory.mktemp("escapes") / "program"
    subprocess.run(["gcc", str(FOLDER / "terminal_escapes.c"), "-o", str(program)], check=True)
    process = open_sandbox("local").start(
        Job(role="run", argv=["{scratch}/program"], limits=Limits(wall_s=20.0), inputs={"program": program})
    )
    try:
        facts = process.wait(30.0)
        assert facts is not None
        assert "\x1b" in facts.output  # else this test could not fail
        return facts.output
    finally:
        process.close()


def dangerous(text: str) -> set[str]:
    """Characters that drive a terminal or reorder a line."""
    controls = {chr(n) for n in [*range(32), *range(127, 160)]} - {"\n", "\t"}
    return (controls | set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")) & set(text)


def printed(show: Callable[[Console], None]) -> str:
    """What a console without colours writes, so that every escape in it is a student's."""
    sink = io.StringIO()
    show(Console(file=sink, width=100))
    return sink.getvalue()


def _build(output: str) -> BuildResult:
    return BuildResult.model_validate(
        {
            **grade().model_dump()["build"],
            "ok": False,
            "finding": Finding(cause=Cause.COMPILE_ERROR, message=output),
            "warnings": (output,),
            "diagnostics": (_diagnostic(output),),
        }
    )


def _diagnostic(output: str) -> Diagnostic:
    return Diagnostic(kind="syntax", file="a.cu", line=1, column=1, message=output, source=output)


def test_untrusted_text_is_clean(output: str) -> None:
    """Text marked as untrusted drives no terminal, and is never read as markup."""
    shown = printed(lambda console: console.print(untrusted(output)))
    assert dangerous(shown) == set()
    assert "[bold]markup[/bold]" in shown


def test_diagnostics_are_clean(output: str) -> None:
    """Compiler messages and source lines drive no terminal."""
    lines: list[Text] = diagnostic_lines([_diagnostic(output)])
    shown: list[RenderableType] = list(lines)
    assert dangerous(printed(lambda console: console.print(*shown))) == set()


def test_cards_are_clean(output: str) -> None:
    """The cards of a grade and of a build drive no terminal, whatever a project printed."""
    bad = grade().model_copy(update={"finding": Finding(cause=Cause.COMPILE_ERROR, message=output)})
    assert dangerous(printed(lambda console: print_card(bad, console, "a task"))) == set()
    built = _build(output)
    assert dangerous(printed(lambda console: print_build(built, console, "a project", None))) == set()


def test_messages_in_reports_are_clean(output: str) -> None:
    """Messages that go into reports hold no control character."""
    assert dangerous(message_of(output)) == set()


def test_errors_on_stderr_are_clean(output: str) -> None:
    """An error of ours that quotes a project's output drives no terminal."""
    code = (
        "import sys\n"
        "from harness.cli import main, runs\n"
        "from harness.errors import SandboxError\n"
        "def fail() -> None:\n"
        "    raise SandboxError(sys.stdin.buffer.read().decode())\n"
        "runs.runs = fail\n"
        "sys.argv = ['liftbench', 'runs']\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=output.encode(), capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"SandboxError" in done.stderr
    assert dangerous(done.stderr.decode()) == set()
