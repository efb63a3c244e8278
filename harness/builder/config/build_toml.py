"""Reading build.toml and deciding whether it is valid.

A file that passes fits our records.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.builder.config.faults import faults
from harness.builder.config.hints import hints
from harness.builder.config.schema import BuildToml as BuildToml
from harness.builder.config.toml_text import toml_fields
from harness.builder.parsing import Question, Unparsable, ask
from harness.errors import HarnessBug
from harness.outcome import Cause
from harness.records import Finding
from sandboxes.orphans import owned_folder

MAX_BYTES: Final = 4 << 20
"""Of a build.toml: the largest published one, of kernels-community, has 539 KiB."""
ABSENT: Final = "validity by our records: the kernels package is absent"
_AT_LINE: Final = re.compile(r"at line \d+, column \d+")
_UPSTREAM_SAYS: Final = "kernel-builder says: "
_MESSAGE_LIMIT: Final = 2_000  # upstream quotes whole source lines; a student may write long ones


def _fields(data: bytes) -> dict[str, Any]:
    """Raises ValueError, which NoToml is."""
    return toml_fields(data.decode())


def _parse(data: bytes) -> BuildToml:
    """Raises ValueError, which ValidationError and NoToml are."""
    fields = _fields(data)
    _check_edition(fields)
    return BuildToml.model_validate(fields)


def _check_edition(fields: dict[str, Any]) -> None:
    general = fields.get("general")
    edition = general.get("edition", 5) if isinstance(general, dict) else 5
    # Edition 4 is the absence of the key, so upstream refuses a written 4 too.
    if type(edition) is not int or edition != 5:
        raise ValueError(f"unsupported build edition {str(edition)[:80]!r}: general.edition is the integer 5")


def read_build_toml(data: bytes) -> BuildToml:
    """The records of a file that `check` accepted; HarnessBug if they cannot hold it."""
    try:
        return _parse(data)
    except ValueError as error:
        raise HarnessBug(f"a valid build.toml does not fit our records: {error}") from error


class Validity(NamedTuple):
    """Whether a build.toml is valid, and what weakens that statement."""

    finding: Finding | None
    warnings: tuple[str, ...] = ()


_HARMLESS: Final = '[general]\nname = "control"\nversion = 1\nlicense = "Apache-2.0"\nbackends = ["cpu"]\n'
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


def check(
    directory: Path,
    backend: str = "cuda",
    *,
    upstream: Callable[[Path], dict[str, str]] | None = None,
) -> Validity:
    """Ask upstream's parser, or our records where the kernels package cannot be imported.

    Advice is for `backend`.
    `upstream` answers {} (valid), {"error": message} or {"absent": why}; the default is the child.
    """
    directory = directory.absolute()  # the child stands elsewhere
    path = directory / "build.toml"
    if not path.is_file():
        return Validity(_finding("it is missing from the top of the project"))
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return Validity(_finding(f"it is larger than {MAX_BYTES >> 20} MiB"))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Validity(_finding(f"line {line} is not UTF-8 text"))
    answer = (upstream or ask_upstream)(directory)
    if "absent" in answer:
        return Validity(_judge_ourselves(data, text, backend), (ABSENT,))
    if "error" in answer:
        return Validity(_finding(_cleaned(answer["error"], directory), text, _UPSTREAM_SAYS, backend))
    try:
        _parse(data)
    except ValueError as error:
        return Validity(_finding(f"kernel-builder accepts it, but liftbench cannot build it: {error}"))
    return Validity(None)


def ask_upstream(directory: Path) -> dict[str, str]:
    """In a child: the parser is native code that reads untrusted bytes."""
    with owned_folder("toml") as harmless:
        (Path(harmless) / "build.toml").write_text(_HARMLESS)
        try:
            answer: dict[str, str] = ask(_CHILD, Question([str(directory)]), lambda: Question([harmless]))
        except Unparsable as error:
            return {"error": f"upstream's parser cannot read this file: {error}"}
    return answer


def _judge_ourselves(data: bytes, text: str, backend: str) -> Finding | None:
    try:
        fields = _fields(data)
        _check_edition(fields)
    except ValueError as error:
        return _finding(str(error), text, backend=backend)
    wrong = faults(fields, backend)
    return _finding(wrong[0].advice, text, backend=backend) if wrong else None


def _cleaned(message: str, directory: Path) -> str:
    """Upstream's message without our paths and its fixed preamble."""
    where = re.escape(str(directory))
    message = re.sub(rf"Cannot parse build configuration in `{where}/?`:\s*", "", message)
    message = re.sub(rf"Cannot parse TOML in {where}/build\.toml:\s*", "", message)
    return message.replace(f"{directory}/", "").replace(str(directory), "the project").strip()


def _finding(message: str, text: str | None = None, says: str = "", backend: str = "cuda") -> Finding:
    """Advice on `text` first, then the message whole, after `says`; without advice the reason first."""
    whole = message if len(message) <= _MESSAGE_LIMIT else f"{message[:_MESSAGE_LIMIT]} ..."
    lines = [] if text is None else hints(text, backend)
    if not lines:
        reason, drawn = _reason(message)
        lines = [reason, whole] if drawn else [reason]
    elif not any(message in line for line in lines):
        lines.append(f"{says}{whole}")
    return Finding(cause=Cause.BAD_BUILD_TOML, message="build.toml is not valid: " + "\n".join(lines))


def _reason(message: str) -> tuple[str, bool]:
    """A message in one line, and whether it drew the place: upstream's parser then gives its reason last."""
    lines = [line.strip() for line in message.split("\n")]
    drawn = [index for index, line in enumerate(lines) if re.match(r"(?:\d+ )?\|", line)]
    at = _AT_LINE.search(lines[0])
    reason = ", ".join(filter(None, lines[drawn[-1] + 1 :])) if drawn else ""
    if reason and at is not None:
        return f"{reason} ({at[0]})", True
    joined = " ".join(lines)
    return joined if len(joined) <= _MESSAGE_LIMIT else f"{joined[:_MESSAGE_LIMIT]} ...", False
