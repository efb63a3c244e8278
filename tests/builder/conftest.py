"""Fixtures of the builder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain, find_toolchain
from harness.records import Project, Target
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.projects import fake_toolchain


@pytest.fixture(scope="module")
def real() -> Toolchain:
    """This machine's; skips without torch."""
    found = find_toolchain()
    if found.torch_root is None:
        pytest.skip("torch is not installed")
    return found


@pytest.fixture
def really(real: Toolchain):
    """Builds in the local sandbox with real compilers; skips where this machine lacks a tool."""

    def run(given: Project, target: Target, cache: Path, **limits: float) -> Built:
        missing = real.missing(target)
        if missing is not None:
            pytest.skip(missing)
        sandbox = SandboxPool(LocalBackend())
        return build(given, target, sandbox=sandbox, toolchain=real, cache=cache, **limits)  # type: ignore[arg-type]

    return run


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    """A CPU-only torch 2.13 with nvcc 13.0, good for planning; nothing in it can run."""
    return fake_toolchain(tmp_path / "toolchain")
