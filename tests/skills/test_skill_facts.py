"""Claims in skills that contradict known facts: found where wrong, left alone where right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.skills.claims import fact_findings, known_facts

ROOT = Path(__file__).parents[2]
WRONG = {
    "cp-async": [
        "`cp.async` needs `__CUDA_ARCH__ >= 900`.",
        "cp.async is only available with Hopper; cp.async requires sm_90",
    ],
    "shared-per-sm": ["| Shared memory | 192 KB/SM |", "an H100 SM offers 192 KB of shared memory"],
    "shared-per-block": ["Up to 228 KB of shared memory per block after opting in."],
    "wgmma-arch": ["`wgmma` needs `sm_90`.", "setmaxnreg requires compute_90"],
    "l2-size": ["The L2 is 2.5x an A100's."],
    "registers-per-sm": ["There are 32K registers per SM."],
    "registers-per-thread": ["at most 256 registers per thread"],
    "threads-per-sm": ["Up to 48 warps per SM.", "sm_90 keeps 1,536 threads per SM"],
    "access-width": ["bf16x2 loads: `__nv_bfloat162` is the key optimization", "half2 gives the widest load"],
    "tma-arch": ["TMA works on Ampere", "Thread block clusters need sm_80"],
    "good-bandwidth": ["22-38% of the bandwidth is reasonable", "A reasonable share of bandwidth is 30%"],
    "warp-size": ["The warp size is 64", "a warp has 64 threads"],
    "block-size": ["2048 threads per block"],
    "cluster-size": ["clusters of up to 32 blocks"],
    "bf16-peak": ["bf16 peak: 1,979 TFLOP/s"],
    "cache-line": ["A cache line has 64 bytes"],
    "pybind11": ["#include <torch/extension.h>", "  PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"],
    "capabilities": ['[general.cuda]\ncapabilities = ["9.0"]', "cuda-capabilities = [9.0]"],
    "kernel-language": ['language = "cuda-hipify"'],
}
RIGHT = {
    "cp-async": [
        "cp.async is sm_80 and later; TMA (cp.async.bulk) needs sm_90.",
        "cp.async.bulk requires sm_90",
    ],
    "shared-per-sm": ["228 KB of shared memory per SM", "A100: 192 KB of L1 and shared memory"],
    "shared-per-block": [
        "228 KB of shared memory per SM, 227 KB per block",
        "228 KB shared memory (227 KB for one block)",
    ],
    "wgmma-arch": [
        "wgmma needs sm_90a",
        "`wgmma` requires sm_90a; sm_90 alone fails",
        "wgmma works on sm_90 boards",
    ],
    "l2-size": ["H100: 50 MB L2", "H200: 60 MB of L2 reported by the driver", "A100's 40 MB of L2"],
    "registers-per-sm": ["64 K registers per SM, 256 KB"],
    "registers-per-thread": ["at most 255 registers per thread", "keep to at most 128 registers per thread"],
    "threads-per-sm": [
        "64 warps per SM on Hopper",
        "Ada holds up to 48 warps per SM",
        "32 warps per SM are resident",
    ],
    "access-width": ["16-byte accesses are the norm", "half2 arithmetic is faster than float"],
    "tma-arch": ["TMA needs sm_90", "clusters are available from sm_90"],
    "good-bandwidth": ["70-90% of a copy's bandwidth is good", "30% of bandwidth is not reasonable"],
    "warp-size": ["warp size = 32", "a block of 64 threads", "a wavefront of AMD: warp size is 64"],
    "block-size": ["1,024 threads per block", "2,048 threads per SM"],
    "cluster-size": ["clusters of up to 8 blocks, 16 with the non-portable attribute"],
    "bf16-peak": ["bf16 989 TFLOP/s dense", "fp8: 1,979 TFLOP/s", "bf16 with sparsity: 1,979 TFLOP/s"],
    "cache-line": ["a cache line has 128 bytes", "On the CPU a cache line has 64 bytes"],
    "pybind11": [
        "No pybind11, `PYBIND11_MODULE` or `torch/extension.h`: they do not compile.",
        "#include <torch/library.h>",
    ],
    "capabilities": [
        '[kernel.a]\ncuda-capabilities = ["9.0a"]',
        "`[general.cuda] capabilities` is an unknown key",
    ],
    "kernel-language": ['backend = "cuda"', 'language = "en"'],
}


def claims(text: str) -> set[str]:
    """The ids of the facts that `text` contradicts."""
    said = [finding.message for finding in fact_findings("SKILL.md", text)]
    return {fact.id for fact in known_facts() if any(f": {fact.claim} ({fact.value}" in one for one in said)}


@pytest.mark.parametrize(("fact", "text"), [(f, t) for f, texts in WRONG.items() for t in texts])
def test_wrong_claims_are_found(fact: str, text: str) -> None:
    """A sentence that contradicts a fact is found, with the value and its source."""
    assert fact in claims(f"Before.\n{text}\nAfter.\n")


@pytest.mark.parametrize(("fact", "text"), [(f, t) for f, texts in RIGHT.items() for t in texts])
def test_right_claims_are_left_alone(fact: str, text: str) -> None:
    """A true sentence near the fact contradicts no fact at all."""
    assert claims(f"Before.\n{text}\nAfter.\n") == set(), fact


def test_every_fact_has_examples_and_valid_patterns() -> None:
    """Each fact has a wrong and a right sentence above, a unique id, and patterns that compile."""
    ids = [fact.id for fact in known_facts()]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(WRONG) == set(RIGHT)
    for fact in known_facts():
        for pattern in (*fact.wrong, fact.about or "", fact.unless or ""):
            re.compile(pattern)


def test_a_claim_across_lines_is_reported_where_it_begins() -> None:
    """Text is wrapped anywhere; a claim that is denied is none, whichever line the denial stands on."""
    (found,) = fact_findings("references/a.md", "\n\nAn SM has 192 KB\nof shared memory.\n")
    assert (found.file, found.line, found.severity) == ("references/a.md", 3, "warning")
    assert "228 KB per SM" in found.message
    assert "Programming Guide" in found.message
    assert fact_findings("a.md", "192 KB\nof shared memory is wrong\n") == []


def test_only_what_breaks_the_build_is_an_error() -> None:
    """Facts of programming are advice; code that kernel-builder refuses is wrong in a text about it."""
    errors = {f.id for f in known_facts() if f.breaks_the_build}
    assert errors == {"pybind11", "capabilities", "kernel-language"}
    (found,) = fact_findings("a.md", "#include <pybind11/pybind11.h>\n")
    assert found.severity == "error"
    (found,) = fact_findings("a.md", "#include <pybind11/pybind11.h>\n", kernel_builder=False)
    assert found.severity == "warning"


@pytest.mark.parametrize("folder", ["skills", "docs", "tasks"])
def test_nothing_that_we_ship_contradicts_a_fact(folder: str) -> None:
    """Our own skills, pages and tasks are right, and no pattern takes them for wrong."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".md", ".cu", ".cuh", ".cpp", ".h", ".py", ".toml"}:
            assert fact_findings(str(path.relative_to(ROOT)), path.read_text()) == []
