"""What the author of a refused build.toml most likely meant, with the line where it stands.

Owns: advice on the mistakes that students make (old blog posts and upstream's own documents teach
several of them). Does not own: whether a file is valid; hints are only asked for when it is not.
Invariant: text that is no TOML gives no hints and never raises.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

_LIMIT: Final = 8  # more hints than that hide the one that matters
_HEADER = re.compile(r"\s*\[\s*([^\]]+?)\s*\]")


def hints(text: str) -> list[str]:
    """Lines such as `line 9: quote the capability: "9.0"`, at most eight."""
    try:
        data = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return []
    found: list[str] = []
    for table, key, advice in _all_hints(data):
        line = line_of(text, table, key)
        found.append(f"line {line}: {advice}" if line else advice)
    return list(dict.fromkeys(found))[:_LIMIT]


def line_of(text: str, table: str, key: str) -> int | None:
    """1-based line of `key` in [table] (of the table's header when the key is not there), if any."""
    current, header = "", None
    for number, line in enumerate(text.splitlines(), 1):
        opening = _HEADER.match(line)
        if opening is not None and "=" not in line.partition("]")[0]:
            current = opening[1].replace('"', "").replace(" ", "")
            header = number if current == table else header
        elif current == table and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", line):
            return number
    return header


def _table(data: Any, *path: str) -> dict[str, Any]:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _all_hints(data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(table, key, advice); the table's name is as in its header."""
    yield from _general_hints(data)
    yield from _framework_hints(data)
    for name, kernel in _table(data, "kernel").items():
        if isinstance(kernel, dict):
            yield from _kernel_hints(f"kernel.{name}", kernel)


def _general_hints(data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    general = _table(data, "general")
    name = general.get("name")
    if isinstance(name, str) and re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", name) is None:
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-").lstrip("0123456789-")
        if len(better) >= 2:
            advice = f'write the name with dashes: name = "{better}" (the Python package is then '
            yield "general", "name", advice + f"{better.replace('-', '_')})"
    if general.get("edition") != 5:
        key = "edition" if "edition" in general else "name"
        yield "general", key, "write `edition = 5` (an integer) under [general]"
    for key, example in (("license", '"Apache-2.0"'), ("version", "1"), ("backends", '["cuda"]')):
        if key not in general:
            yield "general", "name", f"[general] needs `{key} = {example}`"
    backends = general.get("backends")
    if isinstance(backends, (list, str)) and "triton" in backends:
        yield "general", "backends", _TRITON
    if "universal" in general:
        yield "general", "universal", "`universal` is gone: use [torch-noarch] and `backends`"
    for key in ("cuda-minver", "cuda-maxver"):
        if key in general:
            yield "general", key, f"write it as `{key[5:]}` under [general.cuda]"
    cuda = _table(data, "general", "cuda")
    for key in ("capabilities", "cuda-capabilities", "cuda_capabilities"):
        if key in cuda:
            yield (
                "general.cuda",
                key,
                'capabilities belong to a kernel: `cuda-capabilities = ["9.0"]` under [kernel.NAME]',
            )
    for key in ("minver", "maxver"):
        if isinstance(cuda.get(key), (int, float)):
            yield "general.cuda", key, f'versions are strings: {key} = "{cuda[key]}"'


def _framework_hints(data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    frameworks = [name for name in ("torch", "torch-noarch", "tvm-ffi") if name in data]
    if not frameworks:
        yield "torch", "src", 'add a [torch] table: src = ["torch-ext/torch_binding.cpp", ...]'
    if len(frameworks) > 1:
        yield frameworks[1], "", f"keep one of {' and '.join(f'[{f}]' for f in frameworks)}"
    torch = _table(data, "torch")
    for key in ("minver", "maxver", "stable-abi"):
        if isinstance(torch.get(key), (int, float)):
            yield "torch", key, f'versions are strings: {key} = "{torch[key]}"'
    for key in torch:
        if "_" in key:
            yield "torch", key, f"keys have dashes here: `{key.replace('_', '-')}`"


_TRITON: Final = (
    'triton is no backend: a Triton project has backends = ["cuda"] and a [torch-noarch] table, '
    "and no [kernel] tables"
)
_SNAKE: Final = ("cuda_capabilities", "cuda_flags", "cxx_flags", "cuda_minver", "rocm_archs")


def _kernel_hints(table: str, kernel: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if kernel.get("backend") == "triton":
        yield table, "backend", _TRITON
    if "language" in kernel:
        yield table, "language", 'write `backend = "cuda"` and `depends = ["torch"]` for `language`'
    elif "backend" not in kernel:
        yield table, "src", f'[{table}] needs `backend = "cuda"` (or cpu)'
    if "depends" not in kernel:
        yield table, "src", f'[{table}] needs `depends = ["torch"]`'
    for key in _SNAKE:
        if key in kernel:
            yield table, key, f"keys have dashes here: `{key.replace('_', '-')}`"
    if "capabilities" in kernel:
        yield table, "capabilities", "the key is `cuda-capabilities`"
    capabilities = kernel.get("cuda-capabilities", kernel.get("capabilities"))
    for value in capabilities if isinstance(capabilities, list) else ():
        if isinstance(value, float):
            yield table, "cuda-capabilities", f'capabilities are strings: "{value}"'
            break
