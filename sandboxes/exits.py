"""Whose an end is: the one rule by which the end of a process is a student's or ours.

A student's bytes decide every word that a process prints, its exit code, the names in its messages, and
whether it kills itself. So none of these makes a failure ours:

1. `sandbox_error` is ours. Only the sandbox sets it; see sandboxes/running.py.
2. A build whose tasks could not run for over half of its wall-clock limit, because processes outside its
   control group had the cores, is ours. The kernel's accounts say so (sandboxes/starvation.py).
3. A build that failed in any other way is ours where a build of our own fails too, made afterwards in the
   same sandbox with nothing of the project in it (builder/control.py). Parsers of a project's text in
   child processes have a control of the same kind (builder/parsing.py).
4. A death by a signal that may have come from outside is repeated once, in a fresh process.
5. Everything else is the student's, the second such death too.

What the machine lacks to build at all (NO_TOOLCHAIN) is no failure of ours, and never said of a whole one.
"""

from __future__ import annotations

import signal
from typing import Final

from harness.errors import SandboxError
from sandboxes.job import ExitFacts

OWN_DOING: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGPIPE,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
    }
)
"""What a process gets for what it did itself: a second try would favor code that crashes now and then."""
_SHOWN: Final = 600


def refuse_ours(facts: ExitFacts, doing: str) -> None:
    """Raise SandboxError where the end is ours (rules 1 and 2)."""
    if facts.status == "sandbox_error":
        raise SandboxError(f"the sandbox failed while {doing}: {facts.output.strip()[-_SHOWN:]}")
    starved_s = facts.starved_s
    if facts.status == "wall_timeout" and starved_s is not None and starved_s > facts.wall_s / 2:
        raise SandboxError(
            f"the time for {doing} was over after {facts.wall_s:.0f} s, and for {starved_s:.0f} s of it other"
            " processes of this machine had the cores: end them, or run fewer trials at once"
        )


def from_outside(facts: ExitFacts) -> bool:
    """Whether it may have been killed from outside (rule 4): by the host for want of memory, or by hand."""
    return facts.status == "signal" and facts.signal not in OWN_DOING
