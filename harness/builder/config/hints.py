"""What the author of a refused build.toml most likely meant, with the line where it stands.

Any text gives at most eight hints, and never an exception.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, Final, get_args

from harness.builder.config.faults import Fault, faults, nearest
from harness.builder.config.lines import Path, positions
from harness.builder.config.schema import FRAMEWORKS, Backend
from harness.builder.config.toml_text import NoToml, plain, toml_fields

_LIMIT: Final = 8  # more hints than that hide the one that matters
_CONSIDERED: Final = 100  # a hostile file has a hundred thousand mistakes
_AT_LINE = re.compile(r"at line (\d+)")


def hints(text: str, backend: str = "cuda") -> list[str]:
    """Lines such as `line 9: capabilities are strings: "9.0"`, at most eight; advice is for `backend`."""
    text = plain(text)
    try:
        data = toml_fields(text)
    except NoToml as error:
        return list(_syntax_hints(text, str(error)))
    lines = _first_lines(text)
    advised: dict[Path, str] = {}
    mistakes = itertools.islice(_known_mistakes(data, backend), _CONSIDERED)
    for path, advice in (*mistakes, *faults(data, backend)):
        if not _covered(path, advised):
            advised[path] = advice
    ordered = sorted(advised.items(), key=lambda item: _line(lines, item[0]) or 0)
    found = [_with_line(_line(lines, path), advice) for path, advice in ordered]
    return list(dict.fromkeys(found))[:_LIMIT]


def _covered(path: Path, advised: dict[Path, str]) -> bool:
    """Whether it has been spoken of: the key, the table it is in, or the file as a whole."""
    language = (*path[:-1], "language")  # the old word for backend
    renamed = path[-1:] == ("backend",) and language in advised
    return renamed or (not path and bool(advised)) or any(path[: len(done)] == done for done in advised)


def _with_line(line: int | None, advice: str) -> str:
    return f"line {line}: {advice}" if line else advice


def _first_lines(text: str) -> dict[Path, int]:
    """Where each key or table is first named: [a.b] names a, too."""
    lines = positions(text)
    for path, line in list(lines.items()):
        for end in range(1, len(path)):
            lines.setdefault(path[:end], line)
    return lines


def _line(lines: dict[Path, int], path: Path) -> int | None:
    """Of the key itself, or of the table that it is missing from."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)


# --- what is no TOML -------------------------------------------------------------------------


def _syntax_hints(text: str, error: str) -> Iterator[str]:
    at = _AT_LINE.search(error)
    lines = text.split("\n")
    number = min(int(at[1]) if at else len(lines), len(lines))
    line = lines[number - 1][:200].strip()
    key, equals, value = (part.strip() for part in line.partition("="))
    if line.startswith("```"):
        yield f"line {number}: the Markdown fence is part of the file: remove it"
    elif "{%" in line or "{{" in line:
        yield f"line {number}: a placeholder of a template is left in: fill it in"
    elif value in {"True", "False", "None"}:
        yield f"line {number}: TOML writes true and false, and leaves a key out for none"
    elif equals and re.match(r"[A-Za-z_][\w./-]*$", value):
        yield f'line {number}: text needs quotes: {key} = "{value}"'
    elif not equals and re.match(r"[\w-]+\s*:", line):
        yield f"line {number}: TOML has `key = value`, not `key: value`"


# --- forms that were once right, or are often written ------------------------------------------


def _known_mistakes(data: dict[str, Any], backend: str) -> Iterator[Fault]:
    yield from _general(data, backend)
    yield from _framework(data)
    for name, kernel in _table(data, "kernel").items():
        if isinstance(kernel, dict):
            yield from _kernel(("kernel", name), kernel, _triton(data, backend), backend)


def _table(data: Any, *path: str) -> dict[str, Any]:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _triton(data: dict[str, Any], backend: str) -> str:
    """Advice for the backends that the file names, else for the one that is asked for."""
    listed = _table(data, "general").get("backends")
    known = [one for one in listed if one in get_args(Backend)] if isinstance(listed, list) else []
    wanted = known or [backend]
    if wanted == ["cpu"]:
        return 'triton is no backend, and has none for a CPU: write C++ with backend = "cpu"'
    quoted = ", ".join(f'"{one}"' for one in wanted)
    project = f"a Triton project has backends = [{quoted}] and a [torch-noarch] table"
    return f"triton is no backend: {project}, and no [kernel] tables"


def _general(data: dict[str, Any], backend: str) -> Iterator[Fault]:
    general, here = _table(data, "general"), ("general",)
    name = general.get("name")
    if isinstance(name, str) and re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", name) is None:
        better = re.sub(r"[^a-z0-9]+", "-", name[:80].lower()).strip("-").lstrip("0123456789-")
        if len(better) >= 2:
            python = better.replace("-", "_")
            advice = f'write the name with dashes: name = "{better}" (the Python package is then {python})'
            yield Fault((*here, "name"), advice)
    edition = general.get("edition")
    if "edition" not in general:
        yield Fault((*here, "edition"), "write `edition = 5` (an integer) under [general]")
    elif type(edition) is not int or edition != 5:
        older = type(edition) is int and edition < 5
        why = "the formats before it had no number" if older else "an integer, and the newest there is"
        yield Fault((*here, "edition"), f"write `edition = 5` ({why})")
    backends = general.get("backends")
    if isinstance(backends, (list, str)) and "triton" in backends:
        yield Fault((*here, "backends"), _triton(data, backend))
    if "universal" in general:
        yield Fault((*here, "universal"), "`universal` is gone: use [torch-noarch] and `backends`")
    for key in ("cuda-minver", "cuda-maxver"):
        if key in general:
            yield Fault((*here, key), f"write it as `{key[5:]}` under [general.cuda]")
    belongs = 'capabilities belong to a kernel: `cuda-capabilities = ["9.0"]` under [kernel.NAME]'
    for table in (here, (*here, "cuda"), ("torch",)):
        for key in ("capabilities", "cuda-capabilities", "cuda_capabilities"):
            if key in _table(data, *table):
                yield Fault((*table, key), belongs)
    cuda = _table(data, "general", "cuda")
    yield from _versions((*here, "cuda"), cuda, ("minver", "maxver"))


def _versions(table: Path, fields: dict[str, Any], keys: tuple[str, ...]) -> Iterator[Fault]:
    for key in keys:
        if isinstance(fields.get(key), (int, float)):
            yield Fault((*table, key), f'versions are strings: {key} = "{fields[key]}"')


def _framework(data: dict[str, Any]) -> Iterator[Fault]:
    given = [name for name in FRAMEWORKS if name in data]
    if not given:
        likely = [nearest(key, FRAMEWORKS) for key in data if key not in ("general", "kernel")]
        near = next((name for name in likely if name), None)
        meant = f"did you mean [{near}]? " if near else ""
        yield Fault(
            ("torch",),
            f'{meant}add a [torch] table: src = ["torch-ext/torch_binding.cpp", ...], or [torch-noarch] '
            "for a project of Python files only",
        )
    if len(given) > 1:
        yield Fault((given[1],), f"keep one of {' and '.join(f'[{f}]' for f in given)}")
    torch = _table(data, "torch")
    if "name" in torch:
        yield Fault(("torch", "name"), "`name` is gone: the extension is named after general.name")
    if "universal" in torch:
        yield Fault(("torch", "universal"), "`universal` is gone: use [torch-noarch] for [torch]")
    yield from _versions(("torch",), torch, ("minver", "maxver", "stable-abi"))


def _kernel(table: Path, kernel: dict[str, Any], triton: str, backend: str) -> Iterator[Fault]:
    if kernel.get("backend") == "triton":
        yield Fault((*table, "backend"), triton)
    if "language" in kernel:
        told = f'write `backend = "{backend}"` and `depends = ["torch"]` for `language`'
        yield Fault((*table, "language"), told)
    if "capabilities" in kernel:
        yield Fault((*table, "capabilities"), "the key is `cuda-capabilities`")
    for key in ("cuda-capabilities", "capabilities"):
        values = kernel.get(key)
        for index, value in enumerate(values if isinstance(values, list) else ()):
            if isinstance(value, float):
                yield Fault((*table, key, index), f'capabilities are strings: "{value}"')
    yield from _versions(table, kernel, ("cuda-minver",))
