"""Parses untrusted text in a child process with limits on CPU time and memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any, Final

from harness.errors import HarnessBug, SandboxError
from sandboxes.job import OWN_SIGNALS

_CPU_S: Final = 20
_WALL_S: Final = 300.0
"""Generous, so that only a machine without free cores reaches it before the limit of CPU time."""
_MEMORY_BYTES: Final = 4 << 30
_LIMITS: Final = f"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_S}, {_CPU_S + 1}))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
"""


class Unparsable(Exception):
    """The text ended its parser; the message says how."""


def ask(script: str, question: object, control: object) -> Any:
    """Run a Python script in a limited child process, with JSON as input and as the last line of output.

    Raises Unparsable if the question is at fault: the child reached its limits or died, or it answers
    `control`, a harmless question, but not this one. Otherwise raises SandboxError (no CPU time here) or
    HarnessBug.
    """
    done = _run(script, question)
    if done.returncode < 0 and -done.returncode not in OWN_SIGNALS and -done.returncode != signal.SIGXCPU:
        done = _run(script, question)  # it may have been killed from outside
    if done.returncode < 0:
        raise Unparsable(f"the parser died of signal {-done.returncode} on it")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        output = done.stderr.decode(errors="replace")[-500:]
        if not _run(script, control).stdout:
            raise HarnessBug(f"a parser does not answer at all: {output}") from error
        raise Unparsable("the parser gave up on it") from error


def _run(script: str, question: object) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [sys.executable, "-I", "-c", _LIMITS + script],
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
            cwd="/",
            input=json.dumps(question).encode(),
            capture_output=True,
            timeout=_WALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(
            f"a parser got less than {_CPU_S} s of CPU time in {_WALL_S:.0f} s: end other programs, or run "
            "fewer trials at once"
        ) from error
