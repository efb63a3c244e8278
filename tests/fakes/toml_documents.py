"""build.toml files: every key of the schema as Python values, a writer, and Hypothesis strategies for them.

The strategies go from nearly valid to hopeless; `ask_in_a_batch` asks upstream's own parser.
"""

from __future__ import annotations

import copy
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

FUZZ = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""The same examples in every run."""

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


_SCALARS: list[Any] = [
    *("", "a", "cuda", "cpu", "triton", "torch", "cutlass_4_2", "5", "2.1", "12", " 2.1 ", "+2.1", "2."),
    *("1.2.3", "2.10000000000000000000001", "-1.2", "9.0", "sm_90", "My_Kernel", "a-b", "a--b", "-a", "ä"),
    *("a\nb", "x" * 300, "https://x", "https://", "git@h:x", "ssh://u@h/p", "git://", "a:b", "a:/b", "://"),
    *("git+ssh://h/x", "file:///x", "https:x", "HTTPS://X/y", "https://a b/", "https://[::1]/", "git@h: x"),
    *(" https://x/y ", "http://x:99999/"),
    *(0, 1, 5, -1, 4, 3, 2**31, 2**63 - 1, 1.5, 9.0, True, False),
]  # fmt: skip
scalars = st.sampled_from(_SCALARS)
values = st.recursive(
    scalars | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "cuda", "src"]), inner, max_size=2)
    ),
    max_leaves=5,
)


_KEYS = [
    *sorted({str(p[-1]) for tree in (VALID, NOARCH, TVM_FFI) for p in paths(tree) if p}),
    *("language", "universal", "capabilities", "cuda_capabilities", "cuda_flags", "sources", "é", "a.b", ""),
]  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid file with up to four keys changed, removed or added."""
    tree = copy.deepcopy(draw(st.sampled_from([VALID, NOARCH, TVM_FFI])))
    for _ in range(draw(st.integers(0, 4))):
        path = draw(st.sampled_from(paths(tree)))
        parent: Any = tree
        for part in path[:-1]:
            parent = parent[part]
        match draw(st.sampled_from(["set", "remove", "add"])):
            case "set" if path:
                parent[path[-1]] = draw(values)
            case "remove" if path:
                del parent[path[-1]]
            case _:
                node = parent[path[-1]] if path else tree
                if isinstance(node, dict):
                    node[draw(st.sampled_from(_KEYS))] = draw(values)
    return tree


def texts() -> st.SearchStrategy[str]:
    """`documents` as text, as one whole or with a piece of it replaced."""
    whole = documents().map(dumped)
    return whole | st.builds(_damaged, whole, st.integers(0), st.integers(0, 20), st.text(max_size=4))


def _damaged(text: str, at: int, length: int, piece: str) -> str:
    start = at % (len(text) + 1)
    return text[:start] + piece + text[start + length :]


_BATCH = """
import importlib.machinery, importlib.util, json, pathlib, sys
places = list(importlib.util.find_spec("kernels").submodule_search_locations)
spec = importlib.machinery.PathFinder.find_spec("kernels._rust", places)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
answers = []
for text in json.load(sys.stdin):
    (pathlib.Path(sys.argv[1]) / "build.toml").write_bytes(text.encode())
    try:
        module.Build.open(sys.argv[1])
    except ValueError as error:
        answers.append(str(error))
    else:
        answers.append(None)
print(json.dumps(answers))
"""


def ask_in_a_batch(batch: Sequence[str], directory: pathlib.Path) -> list[str | None]:
    """Upstream's error for each text as directory/build.toml, None where it is content."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _BATCH, str(directory)],
        input=json.dumps(batch).encode(),
        capture_output=True,
        check=True,
    )
    answers: list[str | None] = json.loads(done.stdout)
    return answers
