"""The `liftbench` command: its subcommands, their environment variables, and what an error means for the exit
code.

Importing this imports no torch, no SDK and no docker, so that --help is fast.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from harness import __version__
from harness.cli import (
    build_command,
    cases_command,
    eval_command,
    generate_command,
    grade_command,
    headers_command,
    plan_command,
    runs_command,
    skills_command,
    suite_command,
    tasks_command,
)

EXIT_FAILURE, EXIT_USAGE, EXIT_THRESHOLD, EXIT_INTERRUPTED = 1, 2, 3, 130
EXIT_SIGNALED = 128
"""Plus the signal's number: 143 for SIGTERM, 129 for SIGHUP."""
EXIT_PIPE = 141
"""What a shell reports of a program that ended because nobody read its output."""
PREFIX = "LIFTBENCH"

_RESUMES = "finished trials are kept, the same command resumes"

# Newer typers carry a click of their own, so the class is taken from what typer exports.
_CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="liftbench",
    help="Does this agent skill make this model write better GPU kernels?",
    epilog="Every flag is also an environment variable of the same name: `eval --runs 5` is "
    f"{PREFIX}_EVAL_RUNS=5. Repeatable flags take words separated by spaces, flags without a value 1 or 0. "
    "Exit codes: 0 done, 1 our failure, 2 usage, 3 a threshold missed or a fault found, 130 Ctrl-C, "
    "143 SIGTERM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help is plain text: brackets are no markup, and 80 columns are enough
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"liftbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.command("eval")(eval_command.evaluate)
app.command("generate")(generate_command.generate)
app.command("build")(build_command.build)
app.command("grade")(grade_command.grade)
app.command("validate")(grade_command.validate)
app.command("plan")(plan_command.plan)
app.command("runs")(runs_command.runs)
app.command("show")(runs_command.show)
app.command("report")(runs_command.report)
app.command("headers")(headers_command.headers)
tasks_command.app.command("check")(suite_command.check_tasks)
tasks_command.app.command("freeze")(suite_command.freeze_tasks)
tasks_command.app.command("status")(suite_command.write_status)
app.add_typer(tasks_command.app, name="tasks")
app.add_typer(skills_command.app, name="skills")
app.add_typer(cases_command.app, name="cases")


@app.command("doctor")
def doctor(
    json_output: bool = typer.Option(False, "--json", help="Print the findings as JSON."),
    timing: bool = typer.Option(
        False, "--timing", help="Time a reference against itself: how far are speedups to be believed here?"
    ),
    target: str = typer.Option("cpu", help="With --timing: `cpu`, or `cuda` where there is a GPU."),
    sandbox: str = typer.Option("auto,local", help="With --timing: where workers run (only code of ours)."),
    cache: Path | None = typer.Option(None, help="With --timing: folder for locks (default: the user's)."),
) -> None:
    """Say what was found on this machine, and what that allows."""
    from harness.cli.doctor_command import run_doctor, run_timing

    if timing:
        run_timing(target, sandbox, cache, json_output)
    else:
        run_doctor(json_output)


def command_tree() -> Any:
    """The click command, every flag of which is also an environment variable of the same name."""
    root = typer.main.get_command(app)
    for path, command in commands_below(root):
        for option in command.params:
            if option.param_type_name == "option" and "--help" not in option.opts:
                option.envvar = "_".join([PREFIX, *path, max(option.opts, key=len).lstrip("-")])
                option.envvar = option.envvar.replace("-", "_").upper()
                option.show_envvar = False
    return root


def commands_below(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is no group, with its words, such as `("tasks", "list")`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_below(command, (*path, name))
        else:
            yield (*path, name), command


# --- the end ----------------------------------------------------------------------------------------


class _Outputs:
    """Standard output and error as they were at the start (rich replaces a broken one by /dev/null)."""

    def __init__(self) -> None:
        self._files = []
        for number in (1, 2):
            with contextlib.suppress(OSError):  # closed by the caller
                self._files.append(os.dup(number))

    def unread(self) -> bool:
        """Whether the reader of one has gone, as `head` does."""
        poll = select.poll()
        for file in self._files:
            poll.register(file, select.POLLERR)
        return any(event & select.POLLERR for _, event in poll.poll(0))


def _say(text: str) -> None:
    """A line on stderr, if anyone reads it."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr)


def _say_click_error(error: Any) -> None:
    """Click's message, and the environment variable that the wrong value came from."""
    with contextlib.suppress(BrokenPipeError):
        error.show()
    variable = getattr(getattr(error, "param", None), "envvar", None)
    if variable is not None and variable in os.environ:
        _say(f"{variable} is set in the environment")


def _end_on_signals() -> list[signal.Signals]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does; the list returned holds what has come of the three.

    One that our parent has ignored (nohup) stays ignored.
    """
    came: list[signal.Signals] = []

    def end(number: int, frame: object) -> NoReturn:
        came.append(signal.Signals(number))
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    return came


def _leave(code: int) -> NoReturn:
    """Exit without waiting for threads that hang in a model's API."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except BrokenPipeError:
        code = code or EXIT_PIPE
    except OSError as error:
        os.write(2, f"liftbench: the output could not be written: {error.strerror}\n".encode())
        code = code or EXIT_FAILURE
    os._exit(code)


def main() -> None:
    """Run, and turn exceptions into one message and an exit code."""
    came = _end_on_signals()
    code = _run(_Outputs())
    if code == EXIT_INTERRUPTED:
        ended = came[0] if came else signal.SIGINT
        _say(f"ended by {'Ctrl-C' if ended == signal.SIGINT else ended.name}; {_RESUMES}")
        code = EXIT_SIGNALED + ended
    _leave(code)


def _run(outputs: _Outputs) -> int:
    from harness.errors import LiftbenchError, ProviderError, UsageError
    from harness.text import clean

    try:
        result = command_tree()(standalone_mode=False)
        return result if isinstance(result, int) else 0  # typer answers Ctrl-C with 130
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except typer.Exit as done:
        return int(done.exit_code)
    except _CLICK_ERROR as error:
        _say_click_error(error)
        return EXIT_USAGE
    except UsageError as error:
        _say(f"liftbench: {clean(str(error))}")
        return EXIT_USAGE
    except ProviderError as error:
        _say(f"liftbench: {clean(str(error))}\n{_RESUMES}")
        return EXIT_FAILURE
    except LiftbenchError as error:
        # It may quote what a program in a sandbox has printed.
        _say(f"liftbench: {type(error).__name__}: {clean(str(error))}")
        return EXIT_FAILURE
    except (OSError, SystemExit) as error:  # rich and typer turn a broken pipe into SystemExit
        broken = error.__context__ if isinstance(error, SystemExit) else error
        if isinstance(broken, BrokenPipeError) and outputs.unread():
            return EXIT_PIPE
        _say(f"liftbench: {broken or error}")
        return EXIT_FAILURE
    except Exception:  # noqa: BLE001 - the last boundary: a bug of ours, with its traceback
        import traceback

        _say(traceback.format_exc() + "liftbench: this is a bug; please report it with the lines above")
        return EXIT_FAILURE


if __name__ == "__main__":
    main()
