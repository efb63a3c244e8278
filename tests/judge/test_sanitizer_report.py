"""The text of compute-sanitizer: findings, summaries, trouble, and anything at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.sanitizer import Report, read_report

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at (anonymous namespace)::fill_kernel(float *, long, float)+0x160 in fill.cu:6
=========     by thread (64,0,0) in block (3,0,0)
=========     Address 0x7f79b9c00100 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f79b9c00000 of size 256 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: fill(at::Tensor) [0x2ac] in _fill.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at (anonymous namespace)::fill_kernel(float *, long, float)+0x160 in fill.cu:6
=========     by thread (65,0,0) in block (3,0,0)
=========     Address 0x7f79b9c00104 is out of bounds
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 3 errors
"""  # noqa: E501
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel(int *, int *)+0x100 in sum.cu:13
=========     and Read access at sum_kernel(int *, int *)+0x120 in sum.cu:15 [512 hazards]
=========
========= Warning: Race reported between Write access at scan<(int)4>(int *)+0x80 in sum.cu:40
=========     and Write access at scan<(int)4>(int *)+0x80 in sum.cu:40 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at vector_add(int *)+0x70 in add.cu:9
=========     by thread (0,0,0) in block (16,0,0)
=========     Address 0x7f0ae0000000
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at divergent(int *)+0x60 in sync.cu:4
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_DRIVER = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host. \
Please rerun the application under cuda-gdb or a host debugger to catch host side errors.
========= Error: Target application terminated before first instrumented API call
"""
NO_LAUNCHER = """\
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
========= Error: couldn't find exit code.
"""


def test_memcheck_findings_are_counted_and_named() -> None:
    """Equal reports are one finding with a count; the kernel is the tool's; a failed call has none."""
    report = read_report(MEMCHECK)
    assert (report.total, report.trouble) == (3, None)
    assert [(f.kernel, f.count) for f in report.findings] == [
        ("(anonymous namespace)::fill_kernel(float *, long, float)", 2),
        (None, 1),
    ]
    assert report.findings[0].message == "Invalid __global__ write of size 4 bytes"


def test_races_are_findings_and_their_kernels_are_named() -> None:
    """racecheck's errors and warnings both count; "Error:" at the start of a race is no trouble."""
    report = read_report(RACECHECK)
    assert (report.total, report.trouble) == (2, None)
    assert [f.kernel for f in report.findings] == ["sum_kernel(int *, int *)", "scan<(int)4>(int *)"]


@pytest.mark.parametrize(
    ("text", "kernel"), [(INITCHECK, "vector_add(int *)"), (SYNCCHECK, "divergent(int *)")]
)
def test_initcheck_and_synccheck(text: str, kernel: str) -> None:
    """One finding each, with its kernel."""
    report = read_report(text)
    assert (report.total, [f.kernel for f in report.findings]) == (1, [kernel])


def test_clean_needs_the_summary() -> None:
    """Only the tool's own "0 errors" is clean; no text is not."""
    assert read_report(CLEAN) == Report(0, (), None)
    assert read_report("") == Report(None, (), None)
    assert read_report("all well\nERROR SUMMARY: 0 errors\n") == Report(None, (), None)


@pytest.mark.parametrize("text", [NO_DRIVER, NO_LAUNCHER])
def test_the_tools_own_trouble_is_no_finding(text: str) -> None:
    """What the real programs (2025.3, 2026.4) say without a GPU or without their launcher."""
    report = read_report(text)
    assert (report.total, report.findings) == (None, ())
    assert report.trouble is not None
    assert report.trouble.startswith("Error: ")


@given(st.text(max_size=2000))
def test_any_text_is_a_report(text: str) -> None:
    """Whatever the process wrote, there is a bounded report and no exception."""
    prefixed = "\n".join(f"========= {line}" for line in text.splitlines())
    for given_text in (text, prefixed, MEMCHECK + prefixed):
        report = read_report(given_text)
        assert len(report.findings) <= 20
        assert all(len(f.message) <= 300 for f in report.findings)


def test_a_flood_of_findings_is_bounded() -> None:
    """The first 20 kinds are kept, whatever their number."""
    flood = "".join(f"========= Invalid __global__ read of size {n} bytes\n" for n in range(5000))
    report = read_report(flood + "========= ERROR SUMMARY: 5000 errors\n")
    assert (len(report.findings), report.total) == (20, 5000)
