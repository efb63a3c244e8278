"""What is too large to be judged is refused by name, before anything starts."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.records import Workload
from harness.suite.catalogue import LoadedTask, all_tasks
from harness.suite.sizes import HOST_BYTES, gib, refuse_too_large, size_of, sizes
from tests.fakes.overlays import throw_away_task


def grown(rows: int) -> LoadedTask:
    """t/scale with one workload more."""
    loaded = throw_away_task("scale")
    large = Workload(name="large", dims={"rows": rows, "cols": 1024}, scalars={"alpha": 1.0})
    workloads = (*loaded.task.workloads, large)
    return LoadedTask(loaded.task.model_copy(update={"workloads": workloads}), loaded.directory)


def test_a_size_counts_copies_and_the_truth() -> None:
    """Three copies of all operands and eight bytes for each element."""
    loaded = throw_away_task("scale")
    size = size_of(loaded.task, loaded.task.workloads[0], "float32")
    assert size.operands_bytes == 2 * 256 * 256 * 4
    assert size.judged_bytes == 3 * size.operands_bytes + 8 * 2 * 256 * 256
    assert [s.label for s in sizes(loaded.task, "cpu")] == ["square float32", "odd float32"]
    assert [gib(3 << 29), gib(20 << 20)] == ["1.5 GiB", "20 MiB"]


def test_a_workload_that_does_not_fit_is_named() -> None:
    """With its size and the limit; on the GPU the limit is a quarter of its memory."""
    loaded = grown(1 << 20)
    with pytest.raises(UsageError, match=r"t/scale large float32: 40 GiB"):
        refuse_too_large([loaded], "cpu", None)
    with pytest.raises(UsageError, match=r"on this GPU: .* 40 GiB \(limit 20 GiB\)"):
        refuse_too_large([loaded], "cuda", 80 << 30)
    refuse_too_large([loaded], "cuda", 161 << 30)
    refuse_too_large([loaded], "cuda", None)  # nothing runs without a GPU


@pytest.mark.parametrize("loaded", all_tasks(), ids=lambda loaded: loaded.task.name)
def test_the_shipped_suite_fits(loaded: LoadedTask) -> None:
    """Every workload on the CPU target, and on an H100 with 80 GB."""
    refuse_too_large([loaded], "cpu", None)
    refuse_too_large([loaded], "cuda", 80 << 30)
    assert all(size.judged_bytes <= HOST_BYTES for size in sizes(loaded.task, "cpu"))
