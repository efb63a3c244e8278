"""What the tests of built libraries share."""

from __future__ import annotations

import pytest

from harness.builder.toolchain import Toolchain, find_toolchain


@pytest.fixture(scope="module")
def real() -> Toolchain:
    """This machine's; skips without torch."""
    found = find_toolchain()
    if found.torch_root is None:
        pytest.skip("torch is not installed")
    return found
