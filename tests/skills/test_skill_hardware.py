"""Figures of H100 and H200: wrong ones are errors, right ones and other boards' are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.skills.claims import FIGURES, hardware_findings

ROOT = Path(__file__).parents[2]
WRONG = (
    "H100 has compute capability 8.0",
    "The H100 has compute capability 8.0.",
    "An H100 has 108 SMs.",
    "The H100 features 132 SMs, 40 MB of L2 cache and 3.35 TB/s of HBM bandwidth.",
    "The L2 cache of an H100 is 40 MB.",
    "H100's L2 cache is 40 MB.",
    "H100 (sm_80)",
    "H100: sm_89",
    "H200 is compute capability 8.9",
    "H100 has 164 KB shared memory per SM",
    "Each H100 SM has 164 KB of shared memory per SM",
    "On H100, 164 KB of shared memory per SM limit the tile.",
    "There are 108 SMs on an H100.",
    "Unlike A100, H100 has compute capability 8.0.",
    "H100 memory bandwidth: 1.5 TB/s",
    "The H100 has 4.8 TB/s bandwidth",
    "H200 HBM3e bandwidth 3.35 TB/s",
    "H200 has 8 TB/s of HBM bandwidth",
    "The H100 SXM5 has 108 SMs, an A100 has 108.",
    "The H100 (Hopper) GPU has compute capability 8.0 (sm_80).",
    "H100 GPUs have 108 streaming multiprocessors",
    "Maximum shared memory per block on H100 is 163 KB",
    "Target: NVIDIA H100 (compute capability 8.0, 108 SMs)",
    "| GPU | Compute capability | SMs |\n|---|---|---|\n| A100 | 8.0 | 108 |\n| H100 | 8.0 | 132 |",
    "| Spec | A100 | H100 |\n|---|---|---|\n| SMs | 108 | 132 |\n| L2 cache | 40 MB | 40 MB |",
    "- **H100**: 108 SMs",
    "- L2 cache: H100 has 40 MB",
    "### H100\n\n| Spec | Value |\n|--|--|\n| SMs | 132 |\n| Shared Memory | 192 KB/SM |",
    "The compute capability of H100 is 8.0.",
    "H100 L2: 40 MB",
    "The H100 (Hopper) architecture has compute capability 8.0",
    "H100 is a compute capability 8.0 device",
    "The H100 SXM5 has 114 SMs.",
    "H100 NVL: 40 MB L2",
)
RIGHT = (
    "H100 has compute capability 9.0",
    "Unlike A100's 8.0, H100 has compute capability 9.0.",
    "A100 (compute capability 8.0) and H100 (compute capability 9.0)",
    "From A100 (sm_80) to H100",
    "sm_80 (A100), sm_90 (H100), sm_100 (B200)",
    "sm_89: L40, sm_90: H100, sm_100: B200",
    "H100 has 132 SMs, A100 has 108 SMs",
    "H100 has 132 SMs while A100 has 108 SMs",
    "A100 and H100 have 108 and 132 SMs respectively.",
    "H100 PCIe: 114 SMs",
    "The full GH100 die has 144 SMs",
    "An H100 has more SMs than the 108 SMs of an A100",
    "H100 does not have 108 SMs",
    "H100: 50 MB L2",
    "H200: 60 MB of L2 reported by the driver",
    "A100's 40 MB of L2 against 50 MB on H100",
    "H100 has 228 KiB of shared memory per SM",
    "H100: 228 KB shared memory per SM, 227 KB per block",
    "H100: 3.35 TB/s of bandwidth",
    "On an H100 a copy reaches a bandwidth of 2.9 TB/s",
    "H100 HBM3 bandwidth is about 3.3 TB/s",
    "H100 has 3350 GB/s memory bandwidth",
    "H100 PCIe has 2.0 TB/s of memory bandwidth",
    "H200 bandwidth: 4.8 TB/s",
    "H100's L2 bandwidth is 5.5 TB/s",
    "H100 runs sm_80 code",
    "H100 supports compute capability 8.0 features",
    "Compiled for sm_80, this runs on H100",
    "On H100 use 100 KB of shared memory per SM",
    "H100: occupancy with 96 KB of shared memory per SM used",
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
    "A100 has 108 SMs. H100 has 132.",
    "T4/A100/H100 have compute capability 7.5, 8.0 and 9.0",
    "Shared memory per SM: 164 KB on A100, 228 KB on H100",
    "L2 grew from 40 MB (A100) to 50 MB (H100).",
    "L2 grew from 40 MB on A100 to 50 MB on H100.",
    "| sm_80 | A100 |\n|---|---|\n| sm_90 | H100 |",
    "With 3.35 TB/s on H100 and 4.8 TB/s on H200",
    "H100 (80 GB, 3.35 TB/s) and H200 (141 GB, 4.8 TB/s)",
    'cuda-capabilities = ["8.0", "9.0"]  # A100, H100',
    "H100/H200: sm_90, B200: sm_100, RTX 5090: sm_120",
    "Hopper (H100): TMA; compute capability 9.0",
    "wgmma on H100 (sm_90a)",
    "for H100, pass -gencode arch=compute_90a,code=sm_90a",
    "H100 supports compute capability 8.0 binaries.",
    "H100 (full GH100 die): 144 SMs",
)


def errors(text: str) -> list[int | None]:
    """Lines of the errors."""
    return [one.line for one in hardware_findings("SKILL.md", text) if one.severity == "error"]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_figure_is_an_error(text: str) -> None:
    """In a sentence, a list or a table, beside right figures and right ones of other boards."""
    assert errors(f"Before.\n\n{text}\n\nAfter.\n")


@pytest.mark.parametrize("text", RIGHT)
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
    told = {one.message for text in WRONG for one in hardware_findings("a.md", f"{text}\n\n")}
    assert all(any(figure.told in message for message in told) for figure in FIGURES)


@pytest.mark.parametrize("folder", ["skills", "docs", "tasks", "studies"])
def test_nothing_that_we_ship_has_a_wrong_figure(folder: str) -> None:
    """Our own skills, pages and tasks."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".md", ".cu", ".cuh", ".cpp", ".h", ".py", ".toml"}:
            assert hardware_findings(str(path.relative_to(ROOT)), path.read_text()) == []


def test_long_text_costs_no_time() -> None:
    """A text without sentences or with one table after the other is read in one pass."""
    for text in ("H100 has 132 SMs " * 20_000, "| H100 | a |\n|--|--|\n" * 10_000, "H100 (" * 40_000):
        hardware_findings("a.md", text)
