"""build.toml files as Python values: every key of the schema, and a writer for what tests make of them.

Python reads TOML but does not write it.
"""

from __future__ import annotations

import json
from typing import Any

VALID: dict[str, Any] = {
    "general": {
        "name": "my-kernel",
        "version": 3,
        "edition": 5,
        "license": "MIT",
        "backends": ["cpu", "cuda", "rocm", "xpu", "metal", "neuron", "tpu", "cann"],
        "upstream": "https://github.com/a/b",
        "source": "git@github.com:a/b.git",
        "python-depends": ["einops"],
        "kernel-depends": [{"repo-id": "a/b", "version": 1}, {"repo-id": "a/c", "revision": "main"}],
        "hub": {"repo-id": "a/b", "branch": "main"},
        "cuda": {"minver": "12.8", "maxver": "13.9", "python-depends": [], "kernel-depends": []},
        "neuron": {"python-depends": ["nki"], "kernel-depends": []},
        "tpu": {"python-depends": []},
        "xpu": {"python-depends": ["onednn"], "kernel-depends": []},
    },
    "torch": {
        "src": ["torch-ext/b.cpp"],
        "include": ["."],
        "pyext": ["py", "json"],
        "cxx-flags": ["-O3"],
        "minver": "2.10",
        "maxver": "2.99",
        "stable-abi": {"cpu": "2.10", "cuda": "2.11"},
    },
    "kernel": {
        "a": {
            "backend": "cuda",
            "depends": ["torch", "cutlass_3_8"],
            "src": ["a.cu"],
            "include": ["inc"],
            "cxx-flags": ["-O3"],
            "cuda-flags": ["-lineinfo"],
            "cuda-capabilities": ["9.0a"],
            "cuda-minver": "12.8",
        },
        "b": {"backend": "cpu", "depends": [], "src": []},
        "c": {"backend": "metal", "depends": ["metal-cpp"], "src": []},
        "d": {"backend": "rocm", "depends": [], "src": [], "rocm-archs": ["gfx942"], "hip-flags": []},
        "e": {"backend": "xpu", "depends": ["sycl_tla"], "src": [], "sycl-flags": []},
    },
}
NOARCH: dict[str, Any] = {
    "general": VALID["general"],
    "torch-noarch": {"pyext": ["py"], "cuda_capabilities": ["9.0"], "rocm_archs": []},
}
TVM_FFI: dict[str, Any] = {
    "general": VALID["general"],
    "tvm-ffi": {"src": ["a.cpp"], "include": [], "pyext": ["py"], "cxx-flags": []},
}

Path = tuple[str | int, ...]


def paths(node: Any, here: Path = ()) -> list[Path]:
    """Of the node itself and of everything in it, elements of lists included."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [here, *(p for key, child in items for p in paths(child, (*here, key)))]


def dumped(tree: dict[str, Any]) -> str:
    """TOML that reads back as `tree`: one line per key, the inner tables inline."""
    lines: list[str] = []
    for table, fields in tree.items():
        if not isinstance(fields, dict):
            lines.insert(0, f"{_key(table)} = {_value(fields)}")
            continue
        lines += [f"[{_key(table)}]"] + [f"{_key(k)} = {_value(v)}" for k, v in fields.items()]
    return "\n".join([*lines, ""])


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
    return key if bare else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's; DEL alone is one that only TOML wants.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _string(value) if isinstance(value, str) else json.dumps(value)
