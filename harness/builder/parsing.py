"""Parsers of a project's text, in child processes: hostile text can end a parser or keep it busy for ever."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from harness.errors import HarnessBug, SandboxError
from sandboxes.job import OWN_SIGNALS

_CPU_S: Final = 20
_WALL_S: Final = 300.0
"""For a machine that has no time for it: the limit of the text is that of CPU time."""
_MEMORY_BYTES: Final = 4 << 30
_LIMITS: Final = f"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_S}, {_CPU_S + 1}))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
"""


class Question(NamedTuple):
    """A text, as a parser is given it."""

    arguments: Sequence[str] = ()
    stdin: bytes = b""


class Unparsable(Exception):
    """The text ended its parser; says how."""


def ask(script: str, question: Question, control: Callable[[], Question], options: Sequence[str] = ()) -> Any:
    """The JSON that Python's `script` prints last. Raises Unparsable where the text is at fault.

    That is where the child used up its limits or died, or answered about `control`, a harmless text of
    ours, but not about this one. Else SandboxError (no time on this machine) or HarnessBug.
    """
    done = _run(script, question, options)
    if done.returncode < 0 and -done.returncode not in OWN_SIGNALS and -done.returncode != signal.SIGXCPU:
        done = _run(script, question, options)  # perhaps killed from outside
    if done.returncode < 0:
        raise Unparsable(f"the parser died of signal {-done.returncode} on it")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        said = done.stderr.decode(errors="replace")[-500:]
        if not _run(script, control(), options).stdout:
            raise HarnessBug(f"a parser does not answer at all: {said}") from error
        raise Unparsable("the parser gave up on it") from error


def _run(script: str, question: Question, options: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [sys.executable, "-I", *options, "-c", _LIMITS + script, *question.arguments],
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
            cwd="/",
            input=question.stdin,
            capture_output=True,
            timeout=_WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(
            f"a parser had no {_CPU_S} s of CPU time in {_WALL_S:.0f} s: end other programs, or run fewer "
            "trials at once"
        ) from error
