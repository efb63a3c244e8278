"""What our records have against a build.toml, in words, with the path of each fault.

Fields that the records accept give no fault; nothing is raised.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from harness.builder.config import schema
from harness.builder.config.lines import Path
from harness.builder.config.schema import BuildToml
from harness.records.reasons import words_of

_CONSIDERED: Final = 50  # a hostile file has a hundred thousand faults
_COMPARED: Final = 60  # longer words are not compared: difflib is quadratic
_EXAMPLES: Final = {
    "name": '"my-kernel"',
    "version": "1",
    "license": '"Apache-2.0"',
    "depends": '["torch"]',
    "repo-id": '"org/name"',
}
_KERNELS: Final[dict[str, type[BaseModel]]] = {
    "cpu": schema.CpuKernel,
    "cuda": schema.CudaKernel,
    "metal": schema.MetalKernel,
    "rocm": schema.RocmKernel,
    "xpu": schema.XpuKernel,
}
_TABLES: Final[dict[Path, type[BaseModel]]] = {
    (): BuildToml,
    ("general",): schema.General,
    ("general", "cuda"): schema.CudaGeneral,
    ("general", "hub"): schema.Hub,
    ("general", "neuron"): schema.BackendGeneral,
    ("general", "tpu"): schema.TpuGeneral,
    ("general", "xpu"): schema.BackendGeneral,
    ("torch",): schema.Torch,
    ("torch-noarch",): schema.TorchNoarch,
    ("tvm-ffi",): schema.TvmFfi,
}
_CHOICES: Final = {
    "backends": get_args(schema.Backend),
    "depends": get_args(schema.Dependency),
    "stable-abi": get_args(schema.Backend),
    "backend": tuple(_KERNELS),
}


class Fault(NamedTuple):
    """One thing that is wrong."""

    path: Path
    """Of the key, whether it is there or missing."""
    advice: str


def faults(fields: dict[str, Any], backend: str = "cuda") -> list[Fault]:
    """The first fifty faults of a parsed build.toml, in the order of the schema; advice is for `backend`."""
    try:
        BuildToml.model_validate(fields)
    except ValidationError as error:
        found = [_fault(one, fields, backend) for one in error.errors(include_url=False)[:_CONSIDERED]]
        # A value with two allowed types fails twice: what is said of its parts is more to the point.
        whole = {f.path[:end] for f in found for end in range(len(f.path))}
        return [f for i, f in enumerate(found) if f.path not in whole | {g.path for g in found[:i]}]
    return []


def table_name(path: Path) -> str:
    """`[kernel.a]`, or what to call all of it."""
    return f"[{'.'.join(str(part)[:80] for part in path)}]" if path else "the file"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What was meant, if anything comes near."""
    choices = list(known)
    if len(word) > _COMPARED:
        return None
    loose = word.lower().replace("_", "-")
    same = [c for c in choices if c.lower().replace("_", "-") == loose]
    return next(iter(same or difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)), None)


def _path(location: tuple[int | str, ...]) -> Path:
    """Without what pydantic adds: the chosen backend of a kernel, and names of types."""
    parts = list(location)
    if parts[:1] == ["kernel"] and len(parts) > 3 and parts[2] in _KERNELS:
        del parts[2]
    return tuple(p for p in parts if not (isinstance(p, str) and p.endswith("]") and "[" in p))


def _example(name: str, backend: str) -> str:
    suffix = {"cuda": "cu", "rocm": "cu", "metal": "metal"}.get(backend, "cpp")
    fitting = {"backends": f'["{backend}"]', "backend": f'"{backend}"', "src": f'["kernels/kernel.{suffix}"]'}
    return {**_EXAMPLES, **fitting}.get(name, "...")


def _fault(error: Any, fields: dict[str, Any], backend: str) -> Fault:
    path = _path(error["loc"])
    kind, value = error["type"], error["input"]
    # Of a list's element, the list's key is the one to name.
    key = next((str(p) for p in reversed(path) if isinstance(p, str)), "")
    match kind:
        case "missing":
            table, name = path[:-1], str(path[-1])
            if not table:
                return Fault(path, f"a [{name}] table is needed")
            return Fault(path, f"{table_name(table)} needs `{name} = {_example(name, backend)}`")
        case "union_tag_not_found":
            return Fault((*path, "backend"), f'{table_name(path)} needs `backend = "{backend}"`')
        case "union_tag_invalid":
            given = value.get("backend") if isinstance(value, dict) else None
            return Fault((*path, "backend"), _choice("backend", given))
        case "extra_forbidden":
            return Fault(path, _unknown_key(path, fields))
        case "literal_error":
            return Fault(path, _choice("stable-abi" if "stable-abi" in path else key, value))
        case "value_error":
            return Fault(path, f"`{key[:80]}`: {words_of(error)}"[:300])
        case "string_type" | "int_type" | "tuple_type" | "dict_type" | "model_type" | "model_attributes_type":
            return Fault(path, _wrong_type(kind, path, key, value))
        case _:
            return Fault(path, f"`{key[:80]}` {words_of(error)}"[:300])


def _choice(key: str, value: Any) -> str:
    choices = _CHOICES.get(key, ())
    near = nearest(value, choices) if isinstance(value, str) else None
    meant = f'did you mean "{near}"? ' if near else ""
    return f"{_shown(value)} is no possible value of `{key}`: {meant}known: {', '.join(choices)}"


def _wrong_type(kind: str, path: Path, key: str, value: Any) -> str:
    element = bool(path) and isinstance(path[-1], int)
    if kind == "string_type":
        quoted = json.dumps(str(value)) if isinstance(value, (int, float)) else '"..."'
        if element:
            return f"`{key}` is a list of strings: write {quoted} for {_shown(value)}"
        return f"`{key}` is a string: {key} = {quoted}"
    if kind == "int_type":
        return f"`{key}` is an integer, without quotes: {key} = 1"
    if kind == "tuple_type":
        inner = value if isinstance(value, str) else "..."
        return f"`{key}` is a list: {key} = [{json.dumps(inner[:80], ensure_ascii=False)}]"
    if path[:1] == ("kernel",):
        name = str(path[1])[:80] if len(path) > 1 else "NAME"
        return f"every kernel is a table with a name of its own: [kernel.{name}]"
    return f"`{key[:80]}` is a table, not {_shown(value)}"


def _unknown_key(path: Path, fields: dict[str, Any]) -> str:
    table, key = path[:-1], str(path[-1])
    known = _keys(table, fields)
    near = nearest(key, known)
    name = f"`{key[:80]}`"
    if near is not None and near.replace("-", "_") == key.replace("-", "_"):
        style = "dashes" if "-" in near else "underscores"
        return f"keys have {style} here: `{near}` for {name}"
    of_kernels = [b for b, model in _KERNELS.items() if key.replace("_", "-") in _names(model)]
    if of_kernels and table[:1] == ("kernel",):
        return f'{name} is for kernels with backend = "{of_kernels[0]}" only'
    elsewhere = [other for other in _homes(key) if other != table]
    if elsewhere:
        return f"{name} does not belong to {table_name(table)}: move it under {table_name(elsewhere[0])}"
    if near is not None:
        return f"{name} is unknown in {table_name(table)}: did you mean `{near}`?"
    return f"{name} is unknown in {table_name(table)}; known there: {', '.join(sorted(known))}"


def _keys(table: Path, fields: dict[str, Any]) -> list[str]:
    model = _TABLES.get(table)
    if model is None and len(table) == 2 and table[0] == "kernel":
        kernels = fields.get("kernel")
        kernel = kernels.get(table[1]) if isinstance(kernels, dict) else None
        backend = kernel.get("backend") if isinstance(kernel, dict) else None
        model = _KERNELS.get(backend) if isinstance(backend, str) else None
    if model is None and "kernel-depends" in table:
        model = schema.KernelDependency
    return [] if model is None else _names(model)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _homes(key: str) -> list[Path]:
    """Tables that have a key of this name, whichever way its words are joined."""
    loose = key.replace("_", "-")
    found: list[Path] = []
    tables: dict[Path, type[BaseModel]] = {("kernel", "NAME"): schema.CudaKernel, **_TABLES}
    for table, model in tables.items():
        if loose in [name.replace("_", "-") for name in _names(model)]:
            found.append(table)
    return found


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else ("true" if value is True else str(value))
    text = text if len(text) <= 80 else f"{text[:80]}..."
    return f'"{text}"' if isinstance(value, str) else text
