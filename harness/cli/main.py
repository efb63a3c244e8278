"""The `liftbench` command: lazy subcommands, environment variables, signals and exit codes.

A subcommand's module is imported when the subcommand is used, so `liftbench --help` imports none of them.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import select
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from harness import __version__
from harness.errors import LiftbenchError, ProviderError, UsageError
from harness.text import clean

EXIT_FAILURE, EXIT_USAGE, EXIT_THRESHOLD, EXIT_INTERRUPTED = 1, 2, 3, 130
EXIT_SIGNALED = 128
"""Plus the signal's number: 143 for SIGTERM, 129 for SIGHUP."""
EXIT_PIPE = 141
"""As a shell reports SIGPIPE."""
PREFIX = "LIFTBENCH"

GROUPS: Final = {
    "tasks": "The kernels that students are asked for.",
    "skills": "Agent Skills.",
    "board": "Leaderboards.",
    "export": "Tasks and figures for other programs.",
    "cases": "Test cases of skills: strings and files, not kernels.",
}
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "eval": ("eval:evaluate", "Measure a skill's lift: tasks x arms x models x runs."),
    "generate": ("generate:generate", "Write a skill, refine it, and test it on unseen families."),
    "build": ("build:build", "Build projects as kernel-builder does."),
    "grade": ("grade:grade", "Build, check and time one project on one task."),
    "validate": ("grade:validate", "Grade our expert projects, and replies that must score 0."),
    "plan": ("plan:plan", "Say how large a study must be to find an effect, and its rough cost."),
    "runs": ("runs:runs", "List runs with their lifts and decisions."),
    "show": ("runs:show", "Print one trial, or list those that match."),
    "report": ("runs:report", "Write a run's reports again."),
    "compare": ("compare:compare", "Say what changed from run A to run B, and whether by more than noise."),
    "regrade": ("compare:regrade", "Grade the paid replies of a run again, here and now."),
    "serve": ("serve:serve", "Grade projects over HTTP, for training and other harnesses."),
    "board submit": ("board:submit_command", "Pack a run for a board, checked as the board will."),
    "board check": ("board:check_command", "Check submissions, and grade a share of them again."),
    "board build": ("board:build_command", "Build a leaderboard's static site from runs."),
    "export harbor": ("export:harbor_command", "Write tasks for Harbor."),
    "export kernels": ("export:kernels_command", "Write a script for `kernels benchmark`."),
    "export pytest-benchmark": ("export:samples_command", "Write timing samples for pytest-benchmark."),
    "export hub": ("export:hub_command", "Write a run's figures for the Hugging Face Hub."),
    "headers": ("build:headers", "Fetch header files that CUDA builds need and this machine lacks."),
    "tasks list": ("tasks:list_tasks", "List tasks: id, family, sizes."),
    "tasks show": ("tasks:show_task", "Print a task as the student reads it."),
    "tasks check": ("grade:check_tasks", "Try every admission rule on tasks."),
    "skills list": ("skills:list_skills_command", "List shipped and installed skills with their sizes."),
    "skills check": ("skills:check_skill_command", "Check a skill: format, links, code, facts, leaks."),
    "skills fetch": ("skills:fetch_command", "Fetch a skill at one commit of a git repository."),
    "skills install": ("skills:install_command", "Copy a skill to where your agents look for skills."),
    "skills uninstall": ("skills:uninstall_command", "Remove installed skills."),
    "cases check": ("cases:check_command", "Read test cases, and try each on answers that solve nothing."),
    "cases run": ("cases:run_command", "Ask models a skill's test cases, without the skill and with it."),
    "doctor": ("doctor:doctor", "Say what was found on this machine, and what that allows."),
}
"""Words of each command, where its function is below `harness.cli`, and its line in the help, which the
function's docstring continues."""

_RESUMES = "finished trials are kept, the same command resumes"

# Newer typers carry a click of their own, so the class is taken from what typer exports.
_CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class LazyGroup(TyperGroup):
    """A group that imports a subcommand when it is looked up, and none to print its help."""

    commands: Any
    path: tuple[str, ...] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the table."""
        return list(self.commands)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The group or command of that name; None if there is none."""
        if name not in self.commands:
            return None
        if name not in GROUPS:
            return _load((*self.path, name))
        group = LazyGroup(name=name, help=GROUPS[name], no_args_is_help=True, rich_markup_mode=None)
        return group.with_path(name)

    def with_path(self, *path: str) -> LazyGroup:
        """Itself, with the commands of the table that begin with these words."""
        words = [tuple(name.split()) for name in COMMANDS]
        depth = len(path)
        self.commands = dict.fromkeys(w[depth] for w in words if w[:depth] == path and len(w) > depth)
        self.path = path
        return self

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in the help."""
        lines = GROUPS | {name: line for name, (_, line) in COMMANDS.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, lines[" ".join((*self.path, name))]) for name in self.commands])


def _load(path: tuple[str, ...]) -> Any:
    """The click command of a subcommand, with an environment variable for every flag."""
    from harness.cli.options import expand_groups

    where, line = COMMANDS[" ".join(path)]
    module, _, function = where.partition(":")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    try:
        imported = import_module(f"harness.cli.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(f"{' '.join(path)}: no torch found: pip install torch") from None
    found = getattr(imported, function)
    app.command(path[-1], help=f"{line}\n\n{inspect.getdoc(found) or ''}")(expand_groups(found))
    command: Any = typer.main.get_command(app)
    for option in command.params:
        if option.param_type_name == "option" and "--help" not in option.opts:
            words = [PREFIX, *path, max(option.opts, key=len).lstrip("-")]
            option.envvar = "_".join(words).replace("-", "_").upper()
            option.show_envvar = False
    return command


app = typer.Typer(
    name="liftbench",
    cls=LazyGroup,
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


def command_tree() -> Any:
    """The root click command."""
    root: Any = typer.main.get_command(app)
    return root.with_path()


def _outputs() -> select.poll:
    """Copies of standard output and error: rich replaces a broken one by /dev/null."""
    outputs = select.poll()
    for number in (1, 2):
        with contextlib.suppress(OSError):  # closed by the caller
            outputs.register(os.dup(number), select.POLLERR)
    return outputs


def _say(text: str) -> None:
    """Print a line on stderr, if anyone reads it."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr)


def _end_on_signals() -> list[signal.Signals]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does; the list receives each signal that arrives.

    A signal that the parent process ignores (nohup) stays ignored.
    """
    received: list[signal.Signals] = []

    def end(number: int, frame: object) -> NoReturn:
        received.append(signal.Signals(number))
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    return received


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
    """Run and exit; a signal has its own message and exit code."""
    received = _end_on_signals()
    code = run()
    if code == EXIT_INTERRUPTED:
        number = received[0] if received else signal.SIGINT
        _say(f"ended by {'Ctrl-C' if number == signal.SIGINT else number.name}; {_RESUMES}")
        code = EXIT_SIGNALED + number
    _leave(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the process's own arguments; its exit code."""
    outputs = _outputs()
    try:
        result = command_tree().main(arguments, prog_name="liftbench", standalone_mode=False)
        return result if isinstance(result, int) else 0  # typer returns 130 after Ctrl-C
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except typer.Exit as done:
        return int(done.exit_code)
    except _CLICK_ERROR as error:
        with contextlib.suppress(BrokenPipeError):
            error.show()
        variable = getattr(getattr(error, "param", None), "envvar", None)
        if variable is not None and variable in os.environ:
            _say(f"{variable} is set in the environment")
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
        if isinstance(broken, BrokenPipeError) and outputs.poll(0):  # its reader has gone, as `head` does
            return EXIT_PIPE
        _say(f"liftbench: {broken or error}")
        return EXIT_FAILURE
    except Exception:  # noqa: BLE001 - the last boundary: our own bug, with its traceback
        _say(traceback.format_exc() + "liftbench: this is a bug; please report it with the lines above")
        return EXIT_FAILURE


if __name__ == "__main__":
    main()
