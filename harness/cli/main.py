"""The `liftbench` command: its subcommands, and what an error means for the exit code.

Owns: exit codes (0 done, 1 our failure, 2 usage, 3 threshold missed, 130 Ctrl-C) and the one place
where exceptions become messages. Does not own: what a command does (its own module).
Invariant: importing this imports no torch, no SDK and no docker, so that --help is fast.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

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

# Newer typers carry a click of their own, so the class is taken from what typer exports.
_CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="liftbench",
    help="Does this agent skill make this model write better GPU kernels?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "LIFTBENCH", "help_option_names": ["-h", "--help"]},
)
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
    """Say what was found on this machine, and which targets and stages that allows."""
    from harness.cli.doctor_command import run_doctor, run_timing

    if timing:
        run_timing(target, sandbox, cache, json_output)
    else:
        run_doctor(json_output)


def _leave(code: int) -> NoReturn:
    """Exit without waiting for threads that hang in a model's API."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Run, and turn exceptions into one message and an exit code."""
    from harness.errors import LiftbenchError, UsageError
    from harness.report.clean import clean

    code = 0
    try:
        result = app(standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted; finished trials are kept, the same command resumes", file=sys.stderr)
        code = EXIT_INTERRUPTED
    except typer.Exit as done:
        code = done.exit_code
    except _CLICK_ERROR as error:
        error.show()
        code = EXIT_USAGE
    except UsageError as error:
        print(f"liftbench: {clean(str(error))}", file=sys.stderr)
        code = EXIT_USAGE
    except LiftbenchError as error:
        # It may quote what a program in a sandbox has printed.
        print(f"liftbench: {type(error).__name__}: {clean(str(error))}", file=sys.stderr)
        code = EXIT_FAILURE
    except OSError as error:
        print(f"liftbench: {error}", file=sys.stderr)
        code = EXIT_FAILURE
    except Exception:  # noqa: BLE001 - the last boundary: a bug of ours, with its traceback
        import traceback

        traceback.print_exc()
        print("liftbench: this is a bug; please report it with the lines above", file=sys.stderr)
        code = EXIT_FAILURE
    _leave(code)


if __name__ == "__main__":
    main()
