"""The stand-in driver, with a state of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.device.cuda import Device
from tests.fakes.cuda_driver import FakeDriver, compile_driver, fresh


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library: Path) -> Iterator[FakeDriver]:
    found = fresh(library)
    yield found
    assert found.live == 0


@pytest.fixture
def gpu(driver: FakeDriver) -> Iterator[Device]:
    device = Device(driver)
    yield device
    device.close()
