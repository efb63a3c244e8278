"""Reads text of a project in bounded time and memory: TOML here, other languages in a child process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from harness.errors import HarnessBug, SandboxError
from sandboxes.job import OWN_SIGNALS

# --- child processes -------------------------------------------------------------------------

_CPU_S: Final = 20
_WALL_S: Final = 300.0
"""Generous, so that only a machine without free cores reaches it before the limit of CPU time."""
_MEMORY_BYTES: Final = 4 << 30
_LIMITS: Final = f"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_S}, {_CPU_S + 1}))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
"""


class Question(NamedTuple):
    """Input of a parser that runs in a child process."""

    arguments: Sequence[str] = ()
    stdin: bytes = b""


class Unparsable(Exception):
    """The text ended its parser; the message says how."""


def ask(script: str, question: Question, control: Question, options: Sequence[str] = ()) -> Any:
    """Run a Python script in a limited child process and return the JSON that it prints last.

    Raises Unparsable if the text is at fault: the child reached its limits or died, or it answers `control`,
    a harmless text, but not this one. Otherwise raises SandboxError (no CPU time here) or HarnessBug.
    """
    done = _run(script, question, options)
    if done.returncode < 0 and -done.returncode not in OWN_SIGNALS and -done.returncode != signal.SIGXCPU:
        done = _run(script, question, options)  # it may have been killed from outside
    if done.returncode < 0:
        raise Unparsable(f"the parser died of signal {-done.returncode} on it")
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        output = done.stderr.decode(errors="replace")[-500:]
        if not _run(script, control, options).stdout:
            raise HarnessBug(f"a parser does not answer at all: {output}") from error
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
            f"a parser got less than {_CPU_S} s of CPU time in {_WALL_S:.0f} s: end other programs, or run "
            "fewer trials at once"
        ) from error


# --- TOML ------------------------------------------------------------------------------------

Path = tuple[str | int, ...]
"""Of a key or table in a TOML file, such as ("kernel", "a", "src")."""
# tomllib keeps a record for every prefix of a dotted key: 100 kB of `a.a.a...` take gigabytes.
_MOST_PARTS: Final = 20  # keys of a build.toml have at most four
# Possessive quantifiers throughout: a hostile text is never scanned twice.
_PART: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?:^|[{{,])[ \t]*+\[{{0,2}}+(?:[ \t]*+{_PART}[ \t]*+\.){{{_MOST_PARTS}}}", re.M)
_KEY_LINE = re.compile(
    rf"[ \t]*+(\[{{0,2}}+)[ \t]*+({_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)[ \t]*+(?:=|\]{{1,2}}+[ \t]*+(?:#|$))"
)


class NoToml(ValueError):
    """The text is not TOML, or nests deeper than any build.toml does."""


def toml_fields(text: str) -> dict[str, Any]:
    """Parse TOML. Raises NoToml, with `(at line N, ...)` if Python's parser gives the line."""
    text = normalized(text)
    deep = _DEEP_KEY.search(text)
    if deep is not None:
        line = text.count("\n", 0, deep.end()) + 1
        raise NoToml(f"a key has more than {_MOST_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise NoToml("values are nested too deeply") from error
    except ValueError as error:  # also raised for an integer of over 4,300 digits
        raise NoToml(str(error)) from error


def normalized(text: str) -> str:
    """Remove a byte order mark and carriage returns, as kernel-builder's parser does."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def key_lines(text: str) -> dict[Path, int]:
    """The 1-based line of each table and of each key that begins a line; never raises."""
    found: dict[Path, int] = {}
    table: Path = ()
    tables: dict[Path, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        match = _KEY_LINE.match(line)
        if match is None or bool(match[1]) == match[0].endswith("="):
            continue
        path = tuple(part.strip("\"'") for part in re.findall(_PART, match[2]))
        if match[1] == "[[":
            tables[path] = tables.get(path, -1) + 1
            path = (*path, tables[path])
        if match[1]:
            table = path
        else:
            path = (*table, *path)
        found.setdefault(path, number)
    return found
