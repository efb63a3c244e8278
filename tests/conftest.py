"""Shared by all tests: a sandbox and a grader on the CPU target."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.builder.toolchain import Toolchain, find_toolchain
from harness.device.machine import machine_facts
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.zoo import HURRIED

MOST_CPU_S = 3.0
"""CPU time of one unmarked test's call, reaped children included; setup and fixtures do not count. On a
machine where the yardstick takes longer than YARDSTICK_S, so many times as much."""
YARDSTICK_S = 0.17
"""Of a 2-core VM (AMD EPYC) at a load of 1: 0.167 to 0.183 in 10 measurements."""
AGAIN = "again_alone"
"""Property of a test that exceeded the limit beside others."""
COSTLY = ("slow", "alone", "docker", "gpu", "browser", "ray")
_costly: list[str] = []


def pytest_configure() -> None:
    """A shell starts what it puts into the background with Ctrl-C ignored, and tests send it to children."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _yardstick_s() -> float:
    """CPU time of a fixed piece of work now: arithmetic, and fresh pages."""
    before, total = _cpu_s(), 0
    for i in range(1_000_000):
        total += i * i % 7
    bytearray(100_000_000)
    return _cpu_s() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails an unmarked test that takes too much CPU time; beside others it is to be tried again alone, since
    they raise that time. `--junitxml` has the time of every test."""
    before = _cpu_s()
    yield
    used = _cpu_s() - before
    item.user_properties.append(("cpu_s", round(used, 2)))
    allowed = any(item.get_closest_marker(name) for name in COSTLY)
    if used > MOST_CPU_S and not allowed:
        if "PYTEST_XDIST_WORKER" in os.environ:
            item.user_properties.append((AGAIN, True))
        elif used > (most := MOST_CPU_S * max(1.0, _yardstick_s() / YARDSTICK_S)):
            pytest.fail(
                f"took {used:.1f} CPU-seconds: mark it slow, or make it faster than {most:.1f}", pytrace=False
            )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names a failure when it happens, so that a run that is stopped from outside has named what failed."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", report.longrepr)
        print(f"\nFAILED {report.nodeid}: {str(getattr(crash, 'message', crash))[:300]}", flush=True)
    if report.when == "call" and any(name == AGAIN for name, _ in report.user_properties):
        _costly.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tries costly tests again, one at a time, where others ran beside them."""
    if _costly and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n== over {MOST_CPU_S:.0f} CPU-seconds beside others, now one at a time", flush=True)
        again = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *_costly]
        if subprocess.run(again, cwd=session.config.rootpath).returncode:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """What this machine builds with; a test that needs it is skipped where it cannot build for the CPU."""
    found = find_toolchain()
    missing = found.missing("cpu")
    if missing is not None:
        pytest.skip(f"cannot build for the CPU: {missing}")
    return found


@pytest.fixture(scope="session")
def sandbox() -> Iterator[SandboxPool]:
    """A local sandbox; nothing of it outlives the session."""
    tracking = SandboxPool(LocalBackend())
    yield tracking
    tracking.stop()


def tiny(cache: Path, **more: float) -> GradeSettings:
    """Deadlines and memory fit for tiny projects on the CPU."""
    return GradeSettings(
        target="cpu",
        protocol="quick",
        cache=cache,
        worker_wall_s=60.0,
        worker_memory_bytes=3 << 29,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="session")
def hurried(
    toolchain: Toolchain, sandbox: SandboxPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grader]:
    """As `grader`, for projects that use up the time of a build or a call."""
    settings = tiny(tmp_path_factory.mktemp("hurried"), **HURRIED)
    made = Grader(settings, sandbox, toolchain, machine_facts(toolchain))
    yield made
    made.close()


@pytest.fixture(scope="session")
def grader(
    toolchain: Toolchain, sandbox: SandboxPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grader]:
    """Grades on the CPU."""
    made = Grader(tiny(tmp_path_factory.mktemp("cache")), sandbox, toolchain, machine_facts(toolchain))
    yield made
    made.close()
