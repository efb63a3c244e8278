"""Expert projects stand alone and carry copies of each other's headers: a fault is mended in all of them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

KERNELS: Final = Path(__file__).resolve().parent.parent / "kernels_ref"
HEADERS: Final = {
    "attention_head.h": 1,
    "decode_attention.cuh": 1,
    "decode_head.h": 1,
    "flash_attention.cuh": 1,
    "fragments.cuh": 2,  # conv_block also reads what it adds
    "hopper.cuh": 6,  # tiles of gemm, gemm_fp8, grouped_gemm, mlp_swiglu, convolutions, attention
    "hopper_attention.cuh": 1,
    "panels.h": 2,  # gemm_bias_gelu finishes each row of a tile
    "plan.h": 1,
    "store.cuh": 2,  # bf16 alone, or fp16 too
    "tensor_core.cuh": 1,
    "tile.cuh": 3,  # fp16 and bf16, bf16 alone, fp8
}
"""Headers of several projects, and how many different contents they have."""
FUNCTIONS: Final = {
    ("hopper.cuh", "descriptor_of"): 2,  # attention's rows are also 64 bytes
    ("hopper.cuh", "group_wait"): 2,  # gemm_fp8 waits for all
    ("hopper.cuh", "settle"): 3,  # 64 sums, any number of them, and attention's words
    ("panels.h", "multiply_tile"): 2,  # with what finishes a row
    ("panels.h", "product"): 2,
    ("store.cuh", "pair_of"): 2,  # by dtype
    ("tile.cuh", "multiply"): 2,  # by dtype
    ("tile.cuh", "multiply_stages"): 2,  # by dtype
}
"""Functions of these headers with more than one content, overloads taken together."""
_OWN: Final = ("hopper.h", "torch_binding.h")  # what a project declares of itself
_FUNCTION: Final = re.compile(
    r"^(?:template <[^\n]*>\n)?(?:static |inline |INLINE |__device__ )[^;{}]*?\b(\w+)\([^{};]*\)[^{};]*"
    r"\{(?:[^\n]*\}$|.*?^\}$)",
    re.MULTILINE | re.DOTALL,
)


def _copies() -> dict[str, list[str]]:
    """The contents of every header that several projects have, by name, without what steers mutants."""
    found = defaultdict(list)
    for path in (path for pattern in ("*.h", "*.cuh") for path in KERNELS.rglob(pattern)):
        if path.name not in _OWN:
            found[path.name].append(re.sub(r"  // no mutate\b.*", "", path.read_text()))
    return {name: texts for name, texts in found.items() if len(texts) > 1}


def _functions(text: str) -> dict[str, str]:
    """Name -> source; of overloads, one after the other."""
    found: dict[str, str] = defaultdict(str)
    for match in _FUNCTION.finditer(text):
        found[match[1]] += match[0] + "\n"
    return found


def test_copies_of_a_header_are_equal() -> None:
    """To the byte, but for the variants that are named here with their reason."""
    assert {name: len(set(texts)) for name, texts in _copies().items()} == HEADERS


def test_functions_of_different_headers_are_equal() -> None:
    """What variants of a header share is the same in all of them."""
    variants: dict[tuple[str, str], set[str]] = defaultdict(set)
    for header, texts in _copies().items():
        for text in texts:
            for name, source in _functions(text).items():
                variants[header, name].add(source)
    assert len([name for header, name in variants if header == "hopper.cuh"]) > 12
    assert {key: len(found) for key, found in variants.items() if len(found) > 1} == FUNCTIONS
