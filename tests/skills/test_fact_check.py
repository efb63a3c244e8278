"""Claims that contradict known facts of programming and figures of H100 and H200."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.skills.fact_check import FIGURES, fact_findings, hardware_findings, known_facts

ROOT = Path(__file__).parents[2]
WRONG = {
    "cp-async": "`cp.async` needs `__CUDA_ARCH__ >= 900`.",
    "shared-per-sm": "| Shared memory | 192 KB/SM |",
    "shared-per-block": "Up to 228 KB of shared memory per block after opting in.",
    "wgmma-arch": "`wgmma` needs `sm_90`.",
    "l2-size": "The L2 is 2.5x an A100's.",
    "registers-per-sm": "There are 32K registers per SM.",
    "registers-per-thread": "at most 256 registers per thread",
    "threads-per-sm": "Up to 48 warps per SM.",
    "access-width": "bf16x2 loads: `__nv_bfloat162` is the key optimization",
    "tma-arch": "TMA works on Ampere",
    "good-bandwidth": "22-38% of the bandwidth is reasonable",
    "warp-size": "The warp size is 64",
    "block-size": "2048 threads per block",
    "cluster-size": "clusters of up to 32 blocks",
    "bf16-peak": "bf16 peak: 1,979 TFLOP/s",
    "cache-line": "A cache line has 64 bytes",
    "pybind11": "#include <torch/extension.h>",
    "capabilities": '[general.cuda]\ncapabilities = ["9.0"]',
    "kernel-language": 'language = "cuda-hipify"',
}
RIGHT = {
    "cp-async": "cp.async is sm_80 and later; TMA (cp.async.bulk) needs sm_90.",
    "shared-per-sm": "228 KB of shared memory per SM",
    "shared-per-block": "228 KB of shared memory per SM, 227 KB per block",
    "wgmma-arch": "`wgmma` requires sm_90a; sm_90 alone fails",
    "l2-size": "H100: 50 MB L2",
    "registers-per-sm": "64 K registers per SM, 256 KB",
    "registers-per-thread": "at most 255 registers per thread",
    "threads-per-sm": "Ada holds up to 48 warps per SM",
    "access-width": "16-byte accesses are the norm",
    "tma-arch": "TMA needs sm_90",
    "good-bandwidth": "30% of bandwidth is not reasonable",
    "warp-size": "a wavefront of AMD: warp size is 64",
    "block-size": "2,048 threads per SM",
    "cluster-size": "clusters of up to 8 blocks, 16 with the non-portable attribute",
    "bf16-peak": "bf16 with sparsity: 1,979 TFLOP/s",
    "cache-line": "On the CPU a cache line has 64 bytes",
    "pybind11": "No pybind11, `PYBIND11_MODULE` or `torch/extension.h`: they do not compile.",
    "capabilities": '[kernel.a]\ncuda-capabilities = ["9.0a"]',
    "kernel-language": 'backend = "cuda"',
}


def claims(text: str) -> set[str]:
    """The ids of the facts that `text` contradicts."""
    said = [finding.message for finding in fact_findings("SKILL.md", text)]
    return {fact.id for fact in known_facts() if any(f": {fact.claim} ({fact.value}" in one for one in said)}


@pytest.mark.parametrize("fact", WRONG)
def test_a_wrong_claim_is_found_and_a_right_one_is_left_alone(fact: str) -> None:
    """A sentence that contradicts a fact is found; a true one near it contradicts no fact at all."""
    assert fact in claims(f"Before.\n{WRONG[fact]}\nAfter.\n")
    assert claims(f"Before.\n{RIGHT[fact]}\nAfter.\n") == set()


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


WRONG_FIGURES = (
    "H100 has compute capability 8.0",
    "An H100 has 108 SMs.",
    "H100's L2 cache is 40 MB.",
    "Each H100 SM has 164 KB of shared memory per SM",
    "Unlike A100, H100 has compute capability 8.0.",
    "H100 memory bandwidth: 1.5 TB/s",
    "H200 HBM3e bandwidth 3.35 TB/s",
    "Maximum shared memory per block on H100 is 163 KB",
    "| GPU | Compute capability | SMs |\n|---|---|---|\n| A100 | 8.0 | 108 |\n| H100 | 8.0 | 132 |",
    "| Spec | A100 | H100 |\n|---|---|---|\n| SMs | 108 | 132 |\n| L2 cache | 40 MB | 40 MB |",
    "### H100\n\n| Spec | Value |\n|--|--|\n| SMs | 132 |\n| Shared Memory | 192 KB/SM |",
)
RIGHT_FIGURES = (
    "A100 (compute capability 8.0) and H100 (compute capability 9.0)",
    "H100 has 132 SMs while A100 has 108 SMs",
    "H100 PCIe: 114 SMs",
    "H100 does not have 108 SMs",
    "H100 has 3350 GB/s memory bandwidth",
    "An H100 has more SMs than the 108 SMs of an A100",
    "H200: 60 MB of L2 reported by the driver",
    "H100: 228 KB shared memory per SM, 227 KB per block",
    "On an H100 a copy reaches a bandwidth of 2.9 TB/s",
    "H100 supports compute capability 8.0 features",
    "8x H100 have 26.8 TB/s of bandwidth",
    "| Spec | A100 | H100 |\n|---|---|---|\n| SMs | 108 | 132 |\n| L2 cache | 40 MB | 50 MB |",
    "| Spec | H100 SXM | H100 PCIe |\n|---|---|---|\n| SMs | 132 | 114 |\n"
    "| Memory bandwidth | 3.35 TB/s | 2.0 TB/s |",
    "### H100 benchmark\n\n| M | V |\n|--|--|\n| SMs | 100 |\n| L2 cache | 25 MB |",
    "T4/A100/H100 have compute capability 7.5, 8.0 and 9.0",
    "| sm_80 | A100 |\n|---|---|\n| sm_90 | H100 |",
    "H100 (80 GB, 3.35 TB/s) and H200 (141 GB, 4.8 TB/s)",
)


@pytest.mark.parametrize("text", WRONG_FIGURES)
def test_a_wrong_figure_is_an_error(text: str) -> None:
    """In a sentence, a list or a table, beside right figures and right ones of other boards."""
    found = hardware_findings("SKILL.md", f"Before.\n\n{text}\n\nAfter.\n")
    assert found and {one.severity for one in found} == {"error"}


@pytest.mark.parametrize("text", RIGHT_FIGURES)
def test_a_right_figure_is_left_alone(text: str) -> None:
    """Other boards, units, rounding, denials, parts of a board and what was measured."""
    assert hardware_findings("SKILL.md", f"Before.\n\n{text}\n\nAfter.\n") == []


def test_the_message_has_the_right_figure_and_the_line() -> None:
    """What is wrong, where, and what is right."""
    (found,) = hardware_findings("a.md", "# H100\n\nThe H100 has compute capability 8.0.\n")
    assert (found.line, found.severity) == (3, "error")
    assert "compute capability 9.0 (sm_90)" in found.message


def test_every_figure_has_a_wrong_example() -> None:
    """No figure is known that no text is held against."""
    told = {one.message for text in WRONG_FIGURES for one in hardware_findings("a.md", f"{text}\n\n")}
    assert all(any(figure.told in message for message in told) for figure in FIGURES)


def test_long_text_costs_no_time() -> None:
    """A text without sentences or with one table after the other is read in one pass."""
    for text in ("H100 has 132 SMs " * 20_000, "| H100 | a |\n|--|--|\n" * 10_000, "H100 (" * 40_000):
        hardware_findings("a.md", text)
