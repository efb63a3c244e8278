"""The simulation of a fleet's queues: what can be worked out by hand comes out."""

from __future__ import annotations

import pytest

from tools.fleet_model import Fleet, simulate, table


@pytest.mark.parametrize(
    ("fleet", "per_hour", "bottleneck"),
    [
        (Fleet(8, 80, 0.0, 10.0, 0.0), 8 * 360, "GPUs"),
        (Fleet(8, 8, 20.0, 1.0, 0.0, at_once=4, files=1), 8 * 180, "build cores"),
        (Fleet(64, 80, 0.0, 1.0, 0.1), 36_000, "driver"),
        (Fleet(8, 80, 100.0, 1.0, 0.0, at_once=1, files=1), 8 * 3600 / 101, "orders under way"),
        (Fleet(8, 1, 100.0, 10.0, 0.0, cached=1.0), 8 * 360, "GPUs"),
    ],
)
def test_what_is_scarce_decides(fleet: Fleet, per_hour: float, bottleneck: str) -> None:
    """Samples per hour are those of the scarcest: devices, cores, the driver, or orders under way."""
    use = simulate(fleet)
    assert use.per_hour == pytest.approx(per_hour, rel=0.05)
    assert use.bottleneck == bottleneck
    assert max(use.gpu, use.cores, use.driver) <= 1.0


def test_a_table_has_a_row_per_case() -> None:
    """For 8 and 64 GPUs, builds of each size, two caches and two depths of the queue."""
    assert len(list(table([1.0, 2.0], 1.0, 0.001, 80))) == 2 + 2 * 2 * 2 * 2
