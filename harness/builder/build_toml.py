"""Reading build.toml and deciding whether it is valid.

Owns: that decision, and the message that a student gets. Upstream's own parser decides, in a child
process; where it is not installed, our records do. Does not own: the records (build_schema.py) and
advice on mistakes (build_toml_hints.py).
Invariant: a file that upstream accepts is representable here, or HarnessBug is raised.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from harness.builder.hints import hints
from harness.builder.schema import BuildToml as BuildToml
from harness.errors import HarnessBug, SandboxError
from harness.outcome import Cause
from harness.records import Finding

VALIDATOR_TIMEOUT_S: Final = 20.0
ABSENT: Final = "validity by our records: the kernels package is absent"
_FAULTS_SHOWN: Final = 3
_MESSAGE_LIMIT: Final = 2_000  # upstream quotes whole source lines; a student may write long ones


def _parse(data: bytes) -> BuildToml:
    """Raises ValueError (which ValidationError and TOMLDecodeError are) or RecursionError."""
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    fields: dict[str, Any] = tomllib.loads(text)
    general = fields.get("general")
    edition = general.get("edition", 5) if isinstance(general, dict) else 5
    # Edition 4 is the absence of the key, so upstream refuses a written 4 too.
    if type(edition) is not int or edition != 5:
        raise ValueError(f"unsupported build edition {edition!r}: general.edition is the integer 5")
    return BuildToml.model_validate(fields)


def read_build_toml(data: bytes) -> BuildToml:
    """The records of a file that `validate` accepted; HarnessBug if they cannot hold it."""
    try:
        return _parse(data)
    except (ValueError, RecursionError) as error:
        raise HarnessBug(f"a valid build.toml does not fit our records: {error}") from error


class Validity(NamedTuple):
    """Whether a build.toml is valid, and what weakens that statement."""

    finding: Finding | None
    warnings: tuple[str, ...] = ()


# The extension module alone: importing `kernels` takes ten times as long and reads user settings.
_CHILD: Final = """
import importlib.machinery, importlib.util, json, sys
try:
    places = list(importlib.util.find_spec("kernels").submodule_search_locations)
    spec = importlib.machinery.PathFinder.find_spec("kernels._rust", places)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parse = module.Build.open
except Exception as error:
    print(json.dumps({"absent": f"{type(error).__name__}: {error}"}))
    raise SystemExit
try:
    parse(sys.argv[1])
except BaseException as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({}))
"""


def validate(directory: Path) -> Finding | None:
    """Why `directory`/build.toml is not valid, or None. See `check` for warnings."""
    return check(directory).finding


def check(directory: Path, *, upstream: Callable[[Path], dict[str, str]] | None = None) -> Validity:
    """Ask upstream's parser, or our records where the kernels package cannot be imported.

    `upstream` answers {} (valid), {"error": message} or {"absent": why}; the default is the child.
    """
    path = directory / "build.toml"
    if not path.is_file():
        return Validity(_finding("build.toml is missing from the top of the project", ""))
    data = path.read_bytes()
    text = data.decode("utf-8", errors="replace")
    answer = (upstream or ask_upstream)(directory)
    if "absent" in answer:
        return Validity(_judge_ourselves(data, text), (ABSENT,))
    if "error" in answer:
        return Validity(_finding(_cleaned(answer["error"], directory), text))
    return Validity(None)


def ask_upstream(directory: Path) -> dict[str, str]:
    """In a child: the parser is native code that reads untrusted bytes."""
    command = [sys.executable, "-I", "-c", _CHILD, str(directory)]
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VALIDATOR_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"the build.toml validator gave no answer in {error.timeout} s") from error
    if done.returncode < 0:
        return {"error": f"upstream's parser died of signal {-done.returncode} on this file"}
    try:
        answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        tail = done.stderr.decode(errors="replace")[-500:]
        raise HarnessBug(f"the build.toml validator did not answer: {tail}") from error
    return answer


def _judge_ourselves(data: bytes, text: str) -> Finding | None:
    try:
        _parse(data)
    except ValidationError as error:
        # Several: a misspelt key is an unknown one, and leaves the right one missing.
        faults = [
            f"{'.'.join(str(part) for part in one['loc']) or 'the file'}: {one['msg']}"
            for one in error.errors()[:_FAULTS_SHOWN]
        ]
        return _finding("; ".join(faults), text)
    except (ValueError, RecursionError) as error:
        return _finding(str(error), text)
    return None


def _cleaned(message: str, directory: Path) -> str:
    """Upstream's message without our paths and its fixed preamble."""
    where = re.escape(str(directory))
    message = re.sub(rf"Cannot parse build configuration in `{where}/?`:\s*", "", message)
    message = re.sub(rf"Cannot parse TOML in {where}/build\.toml:\s*", "", message)
    return message.replace(f"{directory}/", "").replace(str(directory), "the project").strip()


def _finding(message: str, text: str) -> Finding:
    if len(message) > _MESSAGE_LIMIT:
        message = message[:_MESSAGE_LIMIT] + " ..."
    lines = [f"build.toml is not valid: {message}", *hints(text)]
    return Finding(cause=Cause.BAD_BUILD_TOML, message="\n".join(lines))
