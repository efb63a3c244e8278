"""Claims that contradict known facts of programming and figures of H100 and H200."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.skills.claims import FIGURES, fact_findings, hardware_findings, known_facts

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


@pytest.mark.parametrize("folder", ["skills", "docs", "tasks", "studies"])
def test_nothing_that_we_ship_contradicts_a_fact_or_figure(folder: str) -> None:
    """Our own skills, pages and tasks are right, and no pattern takes them for wrong."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".md", ".cu", ".cuh", ".cpp", ".h", ".py", ".toml"}:
            text = path.read_text()
            assert hardware_findings(str(path), text) == []
            assert folder == "studies" or fact_findings(str(path), text) == []


# --- figures of the boards -----------------------------------------------------------------------

WRONG_FIGURES = (
    "H100 has compute capability 8.0",
    "An H100 has 108 SMs.",
    "The H100 features 132 SMs, 40 MB of L2 cache and 3.35 TB/s of HBM bandwidth.",
    "H100's L2 cache is 40 MB.",
    "H100 (sm_80)",
    "Each H100 SM has 164 KB of shared memory per SM",
    "There are 108 SMs on an H100.",
    "Unlike A100, H100 has compute capability 8.0.",
    "H100 memory bandwidth: 1.5 TB/s",
    "H200 HBM3e bandwidth 3.35 TB/s",
    "H200 has 8 TB/s of HBM bandwidth",
    "The H100 SXM5 has 108 SMs, an A100 has 108.",
    "The H100 (Hopper) GPU has compute capability 8.0 (sm_80).",
    "Maximum shared memory per block on H100 is 163 KB",
    "Target: NVIDIA H100 (compute capability 8.0, 108 SMs)",
    "| GPU | Compute capability | SMs |\n|---|---|---|\n| A100 | 8.0 | 108 |\n| H100 | 8.0 | 132 |",
    "| Spec | A100 | H100 |\n|---|---|---|\n| SMs | 108 | 132 |\n| L2 cache | 40 MB | 40 MB |",
    "- **H100**: 108 SMs",
    "- L2 cache: H100 has 40 MB",
    "### H100\n\n| Spec | Value |\n|--|--|\n| SMs | 132 |\n| Shared Memory | 192 KB/SM |",
    "The compute capability of H100 is 8.0.",
    "H100 L2: 40 MB",
    "The H100 SXM5 has 114 SMs.",
    "H100 NVL: 40 MB L2",
)
RIGHT_FIGURES = (
    "H100 has compute capability 9.0",
    "A100 (compute capability 8.0) and H100 (compute capability 9.0)",
    "From A100 (sm_80) to H100",
    "sm_89: L40, sm_90: H100, sm_100: B200",
    "H100 has 132 SMs while A100 has 108 SMs",
    "A100 and H100 have 108 and 132 SMs respectively.",
    "H100 PCIe: 114 SMs",
    "The full GH100 die has 144 SMs",
    "An H100 has more SMs than the 108 SMs of an A100",
    "H100 does not have 108 SMs",
    "H200: 60 MB of L2 reported by the driver",
    "H100 has 228 KiB of shared memory per SM",
    "H100: 228 KB shared memory per SM, 227 KB per block",
    "On an H100 a copy reaches a bandwidth of 2.9 TB/s",
    "H100 HBM3 bandwidth is about 3.3 TB/s",
    "H100 has 3350 GB/s memory bandwidth",
    "H100 PCIe has 2.0 TB/s of memory bandwidth",
    "H100's L2 bandwidth is 5.5 TB/s",
    "H100 supports compute capability 8.0 features",
    "Compiled for sm_80, this runs on H100",
    "On H100 use 100 KB of shared memory per SM",
    "H100 MIG slices have 16 SMs",
    "DGX H100 has 1056 SMs",
    "8x H100 have 26.8 TB/s of bandwidth",
    "| Spec | A100 | H100 |\n|---|---|---|\n| SMs | 108 | 132 |\n| L2 cache | 40 MB | 50 MB |",
    "| Spec | H100 SXM | H100 PCIe |\n|---|---|---|\n| SMs | 132 | 114 |\n"
    "| Memory bandwidth | 3.35 TB/s | 2.0 TB/s |",
    "Needs compute capability 8.0 or higher (A100, H100)",
    "H100 leaves 4 SMs idle",
    "A kernel on H100 with 128 SMs busy",
    "### H100 benchmark\n\n| M | V |\n|--|--|\n| SMs | 100 |\n| L2 cache | 25 MB |",
    "H100 L2: 2 x 25 MB partitions",
    "It is a myth that H100 has 108 SMs",
    "T4/A100/H100 have compute capability 7.5, 8.0 and 9.0",
    "Shared memory per SM: 164 KB on A100, 228 KB on H100",
    "L2 grew from 40 MB on A100 to 50 MB on H100.",
    "| sm_80 | A100 |\n|---|---|\n| sm_90 | H100 |",
    "With 3.35 TB/s on H100 and 4.8 TB/s on H200",
    "H100 (80 GB, 3.35 TB/s) and H200 (141 GB, 4.8 TB/s)",
    'cuda-capabilities = ["8.0", "9.0"]  # A100, H100',
    "H100/H200: sm_90, B200: sm_100, RTX 5090: sm_120",
    "Hopper (H100): TMA; compute capability 9.0",
    "wgmma on H100 (sm_90a)",
    "for H100, pass -gencode arch=compute_90a,code=sm_90a",
)


def errors(text: str) -> list[int | None]:
    """Lines of the errors."""
    return [one.line for one in hardware_findings("SKILL.md", text) if one.severity == "error"]


@pytest.mark.parametrize("text", WRONG_FIGURES)
def test_a_wrong_figure_is_an_error(text: str) -> None:
    """In a sentence, a list or a table, beside right figures and right ones of other boards."""
    assert errors(f"Before.\n\n{text}\n\nAfter.\n")


@pytest.mark.parametrize("text", RIGHT_FIGURES)
def test_a_right_figure_is_left_alone(text: str) -> None:
    """Other boards, units, rounding, denials, parts of a board and what was measured."""
    assert hardware_findings("SKILL.md", f"Before.\n\n{text}\n\nAfter.\n") == []


def test_the_message_has_the_right_figure_and_the_line() -> None:
    """What is wrong, where, and what is right."""
    (found,) = hardware_findings("a.md", "# H100\n\nThe H100 has compute capability 8.0.\n")
    assert (found.line, found.severity) == (3, "error")
    assert "compute capability 9.0 (sm_90)" in found.message


def test_what_only_the_pcie_board_has_is_a_warning_without_its_name() -> None:
    """True of one variant: told, and no error."""
    for text in ("The H100 has 114 SMs.", "H100 memory bandwidth: 2.0 TB/s"):
        (found,) = hardware_findings("a.md", text + "\n")
        assert (found.severity, "PCIe" in found.message) == ("warning", True)


def test_every_figure_has_a_wrong_example() -> None:
    """No figure is known that no text is held against."""
    told = {one.message for text in WRONG_FIGURES for one in hardware_findings("a.md", f"{text}\n\n")}
    assert all(any(figure.told in message for message in told) for figure in FIGURES)


def test_long_text_costs_no_time() -> None:
    """A text without sentences or with one table after the other is read in one pass."""
    for text in ("H100 has 132 SMs " * 20_000, "| H100 | a |\n|--|--|\n" * 10_000, "H100 (" * 40_000):
        hardware_findings("a.md", text)
