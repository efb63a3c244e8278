"""Validates a build.toml with kernel-builder's own parser, and explains what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from harness.builder import build_toml
from harness.builder.build_toml import BuildToml, NoToml, Path, key_lines, normalized, toml_fields
from harness.builder.limited_parser import Unparsable, ask
from harness.errors import did_you_mean
from harness.outcome import Cause
from harness.records import PARSER_SAYS, Finding
from harness.records.reasons import words_of
from sandboxes.orphans import owned_folder

MAX_BYTES: Final = 4 << 20
"""The largest published build.toml, in kernels-community, has 539 KiB."""
_MESSAGE_LIMIT: Final = 2_000  # the parser quotes whole source lines


def read_build_toml(
    data: bytes, backend: str = "cuda", *, upstream: Callable[[str], str | None] | None = None
) -> BuildToml | Finding:
    """The records of a build.toml, or what is wrong with it, with advice for `backend`.

    `upstream` asks kernel-builder's parser (default: `ask_upstream`): its error message, or None.
    """
    if len(data) > MAX_BYTES:
        return _finding(f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _finding(f"line {line} is not UTF-8 text")
    wrong = (upstream or ask_upstream)(text)
    if wrong is not None:
        return _finding(wrong, hints(text, backend), PARSER_SAYS)
    try:
        return BuildToml.model_validate(toml_fields(text))
    except ValueError as error:
        return _finding(f"kernel-builder accepts it, but liftbench cannot build it: {error}")


_HARMLESS: Final = '[general]\nname = "control"\nversion = 1\nlicense = "Apache-2.0"\nbackends = ["cpu"]\n'
# Only the extension module: importing `kernels` takes ten times as long and reads user settings.
_PARSER: Final = """
import importlib.machinery, importlib.util, json, sys
places = list(importlib.util.find_spec("kernels").submodule_search_locations)
spec = importlib.machinery.PathFinder.find_spec("kernels._rust", places)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    module.Build.open(json.load(sys.stdin))
except BaseException as error:
    print(json.dumps(str(error)))
else:
    print("null")
"""


def ask_upstream(text: str) -> str | None:
    """The error of kernel-builder's parser, run in a child process as native code on untrusted bytes."""
    with owned_folder("toml") as folder:
        project, control = FilePath(folder, "project"), FilePath(folder, "control")
        for place, toml in ((project, text), (control, _HARMLESS)):
            place.mkdir()
            (place / "build.toml").write_bytes(toml.encode())
        try:
            answer: str | None = ask(_PARSER, str(project), str(control))
        except Unparsable as error:
            return f"upstream's parser cannot read this file: {error}"
    if answer is None:
        return None
    # Without our paths and the fixed preamble.
    where = re.escape(str(project))
    answer = re.sub(
        rf"Cannot parse (?:build configuration in `{where}/?`|TOML in {where}/build\.toml):\s*", "", answer
    )
    return answer.replace(f"{project}/", "").replace(str(project), "the project").strip()


def _finding(message: str, advice: Iterable[str] = (), prefix: str = "") -> Finding:
    """Advice first, then the message; without advice, the message's reason on the first line."""
    whole = message if len(message) <= _MESSAGE_LIMIT else f"{message[:_MESSAGE_LIMIT]} ..."
    lines = list(advice)
    if not lines:
        reason = _reason(message)
        lines = [reason[:_MESSAGE_LIMIT], *([whole] if "\n" in message and reason not in whole else [])]
    elif message and not any(message in line for line in lines):
        lines.append(f"{prefix}{whole}")
    return Finding(cause=Cause.BAD_BUILD_TOML, message="build.toml is not valid: " + "\n".join(lines))


def _reason(message: str) -> str:
    """A message on one line: the parser draws the place first, and gives its reason below the drawing."""
    lines = [line.strip() for line in message.split("\n")]
    drawn = [index for index, line in enumerate(lines) if re.match(r"(?:\d+ )?\|", line)]
    place = re.search(r"at line \d+, column \d+", lines[0])
    reason = ", ".join(filter(None, lines[drawn[-1] + 1 :])) if drawn else ""
    return f"{reason} ({place[0]})" if reason and place else " ".join(lines)


_MOST_HINTS: Final = 8  # more of them hide the one that matters
_MOST_FAULTS: Final = 50  # a hostile file has a hundred thousand
_EXAMPLES: Final = {"name": '"my-kernel"', "version": "1", "license": '"Apache-2.0"', "depends": '["torch"]'}
_KERNELS: Final[dict[str, type[BaseModel]]] = {"cpu": build_toml.CpuKernel, "cuda": build_toml.CudaKernel}
_KERNEL_BACKENDS: Final = (*_KERNELS, "metal", "rocm", "xpu")
_TABLES: Final[dict[Path, type[BaseModel]]] = {
    (): BuildToml,
    ("general",): build_toml.General,
    ("general", "cuda"): build_toml.CudaGeneral,
    ("torch",): build_toml.Torch,
    ("torch-noarch",): build_toml.TorchNoarch,
    ("tvm-ffi",): build_toml.TvmFfi,
}
_CAPABILITIES: Final = 'capabilities belong to a kernel: `cuda-capabilities = ["9.0"]` under [kernel.NAME]'
# Keys of older formats, and keys that are often written in the wrong table.
_MISPLACED: Final = {
    "universal": "`universal` is gone: use [torch-noarch] and `backends`",
    "language": 'write `backend = "BACKEND"` and `depends = ["torch"]` for `language`',
    "cuda-minver": "write it as `minver` under [general.cuda]",
    "cuda-maxver": "write it as `maxver` under [general.cuda]",
    "capabilities": _CAPABILITIES,
    "cuda-capabilities": _CAPABILITIES,
}
_EDITION: Final = "write `edition = 5` (an integer) under [general]"
_TRITON: Final = (
    'triton is no backend: a Triton project has backends = ["BACKEND"] and a [torch-noarch] table, and no '
    "[kernel] tables"
)
_CPU_TRITON: Final = 'triton is no backend, and has none for a CPU: write C++ with backend = "cpu"'
_NO_FRAMEWORK: Final = (
    'add a [torch] table: src = ["torch-ext/torch_binding.cpp", ...], or [torch-noarch] for a project of '
    "Python files only"
)


def hints(text: str, backend: str = "cuda") -> list[str]:
    """At most eight lines such as ``line 9: `minver` must be text``; none if the text is no TOML."""
    text = normalized(text)
    try:
        fields = toml_fields(text)
    except NoToml:
        return []
    found = faults(fields, backend)
    general = fields.get("general")
    if isinstance(general, dict) and "edition" not in general:
        found.append((("general", "edition"), _EDITION))
    lines = key_lines(text)
    for path, line in list(lines.items()):
        for end in range(1, len(path)):
            lines.setdefault(path[:end], line)
    placed = []
    for path, advice in found:
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0)
        placed.append((line, f"line {line}: {advice}" if line else advice))
    placed.sort(key=lambda item: item[0])
    return list(dict.fromkeys(hint for _, hint in placed))[:_MOST_HINTS]


def faults(fields: dict[str, Any], backend: str = "cuda") -> list[tuple[Path, str]]:
    """(key, advice) for the first fifty errors of a parsed build.toml, in the order of the schema."""
    try:
        BuildToml.model_validate(fields)
    except ValidationError as error:
        found = [_fault(one, fields, backend) for one in error.errors(include_url=False)[:_MOST_FAULTS]]
        # A value with two allowed types is reported twice: keep the report about its parts.
        whole = {path[:end] for path, _ in found for end in range(len(path))}
        return [f for i, f in enumerate(found) if f[0] not in whole | {path for path, _ in found[:i]}]
    return []


def _fault(error: Any, fields: dict[str, Any], backend: str) -> tuple[Path, str]:
    path = _path(error["loc"])
    # The key of a list's element is the list's key.
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    if error["type"].startswith("union_tag"):
        return (*path, "backend"), _kernel_backend(path, error["input"], backend)
    return path, _advice(error, path, key, fields, backend)


def _advice(error: Any, path: Path, key: str, fields: dict[str, Any], backend: str) -> str:
    kind, value = error["type"], error["input"]
    table, name = _table_name(path[:-1]), f"`{key[:80]}`"
    if path == ():
        return words_of(error) if any(one in fields for one in build_toml.FRAMEWORKS) else _NO_FRAMEWORK
    if key == "edition":
        return _EDITION
    if kind == "missing":
        fitting = {"backends": f'["{backend}"]', "backend": f'"{backend}"', **_EXAMPLES}.get(key, "...")
        return f"{table} needs `{key} = {fitting}`" if path[:-1] else f"a [{key}] table is needed"
    if kind == "extra_forbidden":
        return _unknown_key(name, key, path[:-1], fields).replace("BACKEND", backend)
    if kind == "literal_error":
        return _choice(key, value, re.findall("'([^']+)'", error["ctx"]["expected"]), backend)
    if path[0] == "kernel" and kind.startswith("model_"):
        return "every kernel is a table with a name of its own, such as [kernel.scale]"
    if path == ("general", "name") and isinstance(value, str):
        better = re.sub(r"[^a-z0-9]+", "-", value[:80].lower()).strip("-").lstrip("0123456789-")
        if len(better) >= 2:
            python = better.replace("-", "_")
            return f'write the name with dashes: name = "{better}" (the Python package is then {python})'
    if kind == "string_type" and isinstance(value, int | float):
        return f'{name} must be text: write "{value}" for {value}'[:300]
    return f"{name}{':' if kind == 'value_error' else ''} {words_of(error)}"[:300]


def _path(location: tuple[int | str, ...]) -> Path:
    """Pydantic's location without the chosen backend of a kernel and without names of types."""
    parts = list(location)
    if parts[:1] == ["kernel"] and len(parts) > 3 and parts[2] in _KERNEL_BACKENDS:
        del parts[2]
    return tuple(p for p in parts if not (isinstance(p, str) and p.endswith("]") and "[" in p))


def _table_name(path: Path) -> str:
    return f"[{'.'.join(str(part)[:80] for part in path)}]" if path else "the file"


def _kernel_backend(path: Path, kernel: Any, backend: str) -> str:
    """Advice on a missing or unknown backend of a kernel."""
    if "backend" in kernel:
        return _choice("backend", kernel["backend"], _KERNEL_BACKENDS, backend)
    if "language" in kernel:
        return _MISPLACED["language"].replace("BACKEND", backend)
    return f'{_table_name(path)} needs `backend = "{backend}"`'


def _choice(key: str, value: Any, choices: Iterable[str], backend: str) -> str:
    if value == "triton":
        return _CPU_TRITON if backend == "cpu" else _TRITON.replace("BACKEND", backend)
    known = f"known: {', '.join(choices)}{did_you_mean(str(value), choices)}"
    return f'"{str(value)[:80]}" is no possible value of `{key}`; {known}'


def _unknown_key(name: str, key: str, table: Path, fields: dict[str, Any]) -> str:
    known, loose = _keys(table, fields), key.replace("_", "-")
    same = next((k for k in known if k.replace("_", "-") == loose), None)
    if same is not None:
        style = "dashes" if "-" in same else "underscores"
        return f"keys have {style} here: `{same}` for {name}"
    if loose in _MISPLACED:
        return _MISPLACED[loose]
    if table[:1] == ("kernel",) and key in ("cuda-flags", "cuda-minver"):
        return f'{name} is for kernels with backend = "cuda" only'
    known_there = f"; known there: {', '.join(sorted(known))}"
    return f"{name} is unknown in {_table_name(table)}{did_you_mean(key, known) or known_there}"


def _keys(table: Path, fields: dict[str, Any]) -> list[str]:
    model = _TABLES.get(table)
    if model is None and len(table) == 2 and table[0] == "kernel":
        model = _KERNELS.get(str(fields["kernel"][table[1]].get("backend")))
    if model is None and "kernel-depends" in table:
        model = build_toml.KernelDependency
    return [] if model is None else [f.alias or name for name, f in model.model_fields.items()]
