"""Hypothesis strategies for build.toml files, from nearly valid to hopeless.

The schema's keys, each with values of its own kind and of every other kind.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.fakes.toml_documents import NOARCH, TVM_FFI, VALID, dumped, paths

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
