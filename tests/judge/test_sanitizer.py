"""compute-sanitizer: where it is found, and a worker under a stand-in of it in a real sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.builder.toolchain import Toolchain
from harness.judge.check import problems
from harness.judge.sanitizer import Report, Sanitizer, find_sanitizer, read_report, run_tool
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace, Wrapper
from harness.records import SanitizerRun
from harness.records.grade import SANITIZER_TOOLS
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.overlays import throw_away_task
from tests.fakes.sanitizer import fake_sanitizer

LOADED: Final = throw_away_task("scale")
_INIT = "def scale(out, x, *, alpha):\n    {body}\n"


def program(folder: Path, *, launcher: bool = True) -> Path:
    folder.mkdir(parents=True)
    made = folder / "compute-sanitizer"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    if launcher:
        (folder / "TreeLauncherSubreaper").touch()
    return made


def test_program_is_found_in_a_toolkit(tmp_path: Path) -> None:
    """In CUDA_HOME or the toolkit that builds; a script in bin/ stands for the program that it runs."""
    assert isinstance(find_sanitizer(tmp_path, {}), str)
    made = program(tmp_path / "cuda" / "compute-sanitizer")
    found = find_sanitizer(tmp_path / "cuda", {})
    assert found == Sanitizer(made, made.parent)
    assert find_sanitizer(None, {"CUDA_HOME": str(tmp_path / "cuda")}) == found
    program(tmp_path / "cuda" / "bin", launcher=False)
    assert find_sanitizer(None, {"PATH": str(tmp_path / "cuda" / "bin")}) == found
    # The pip wheels of CUDA 12.9 and 13.0 have no launcher and cannot start anything.
    program(tmp_path / "bin", launcher=False)
    incomplete = find_sanitizer(None, {"PATH": str(tmp_path / "bin")})
    assert isinstance(incomplete, str) and "TreeLauncherSubreaper" in incomplete


Run = Callable[..., list[SanitizerRun]]


@pytest.fixture
def run(tmp_path: Path, toolchain: Toolchain) -> Iterator[Run]:
    """Runs tools (a stand-in that writes `reports`) on a project whose op is `body`."""
    package, folder = tmp_path / "package", tmp_path / "tool"
    for made in (package, folder):
        made.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    sanitizer = fake_sanitizer(folder)
    root = toolchain.torch_root
    assert root is not None
    place = WorkerPlace(site=(root.parent,), python=toolchain.python)
    source = Source("project", package / "__init__.py", LOADED.task.module, LOADED.task.op)
    sandbox = SandboxPool(LocalBackend())

    def running(
        body: str, reports: dict[str, str] | None = None, wall_s: float | None = None
    ) -> list[SanitizerRun]:
        (folder / "REPORT").write_text(json.dumps(reports or {}))
        (package / "__init__.py").write_text(_INIT.format(body=body))

        def start(limit_s: float, under: Wrapper) -> WorkerClient:
            wall = limit_s if wall_s is None else wall_s
            return WorkerClient(source, sandbox, replace(place, under=under), wall_s=wall, call_s=limit_s)

        tools = ("memcheck",) if reports is None else SANITIZER_TOOLS
        return [run_tool(start, sanitizer, tool, problems(LOADED, "cpu")[0]) for tool in tools]

    yield running
    sandbox.stop()


@pytest.mark.slow
def test_every_tool_is_a_run_of_its_own(run: Run) -> None:
    """A real worker is called once under each tool; what one finds is its own, the rest is clean."""
    runs = run("out.copy_(x * alpha)", {"memcheck": MEMCHECK})
    assert [(r.tool, r.status, r.total) for r in runs] == [
        ("memcheck", "findings", 3),
        ("racecheck", "clean", 0),
        ("initcheck", "clean", 0),
        ("synccheck", "clean", 0),
    ]
    assert runs[0].findings[0].kernel == "(anonymous namespace)::fill_kernel(float *, long, float)"
    assert all(r.workload == problems(LOADED, "cpu")[0].label for r in runs)


@pytest.mark.slow
def test_a_call_that_raises_is_not_clean(run: Run) -> None:
    """The tool found nothing, but the op did not do its work: not measured, with its reason."""
    (one,) = run("raise RuntimeError('not under a tool')")
    assert (one.status, one.total) == ("not_measured", 0)
    assert one.message is not None and "not under a tool" in one.message


@pytest.mark.slow
def test_a_hang_is_timed_out(run: Run) -> None:
    """A process that its deadline ends is timed out, whatever it wrote."""
    (one,) = run("import time; time.sleep(600)", wall_s=8.0)
    assert one.status == "timed_out"


MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at (anonymous namespace)::fill_kernel(float *, long, float)+0x160 in fill.cu:6
=========         Host Frame: fill(at::Tensor) [0x2ac] in _fill.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at (anonymous namespace)::fill_kernel(float *, long, float)+0x160 in fill.cu:6
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
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_DRIVER = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host. \
Please rerun the application under cuda-gdb or a host debugger to catch host side errors.
========= Error: Target application terminated before first instrumented API call
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


def test_clean_needs_the_summary() -> None:
    """Only the tool's own "0 errors" is clean; trouble of the tool itself (2025.3, 2026.4) is no finding."""
    assert read_report(CLEAN) == Report(0, (), None)
    for text in ("", "all well\nERROR SUMMARY: 0 errors\n"):
        assert read_report(text) == Report(None, (), None)
    report = read_report(NO_DRIVER)
    assert (report.total, report.findings) == (None, ())
    assert report.trouble is not None and report.trouble.startswith("Error: ")


@given(st.text(max_size=2000))
def test_any_text_is_a_report(text: str) -> None:
    """Whatever the process wrote, there is a bounded report and no exception."""
    prefixed = "\n".join(f"========= {line}" for line in text.splitlines())
    for given_text in (text, prefixed, MEMCHECK + prefixed):
        report = read_report(given_text)
        assert len(report.findings) <= 20
        assert all(len(f.message) <= 300 for f in report.findings)
