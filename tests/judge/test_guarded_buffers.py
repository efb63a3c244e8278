"""The judge's shared memory, with a worker that maps the descriptor and does as it likes."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.adversarial import fit_layout
from harness.judge.guarded_buffers import Arena, Layout, _same_bytes
from harness.judge.problem import Problem, Tensors
from harness.judge.shared_memory import HostMemory
from harness.records.task import Arrangement
from tests.fakes.overlays import throw_away_task


def problem_of(name: str) -> Problem:
    loaded = throw_away_task(name)
    return Problem(loaded, loaded.task.workloads[0], "float32")


@pytest.fixture
def filled() -> Iterator[tuple[Arena, list[Tensors]]]:
    problem = problem_of("scale")
    sets = [problem.make_inputs() for _ in range(2)]
    arena = Arena(Layout(problem), sets, 0xFF)
    yield arena, sets
    arena.close()


def descriptor_of(arena: Arena) -> int:
    descriptor = arena.handle().descriptor
    assert descriptor is not None
    return descriptor


def worker_view(arena: Arena) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(descriptor_of(arena), arena.size), dtype=torch.uint8)


def place(arena: Arena, index: int, name: str) -> tuple[int, int]:
    slot = next(s for s in arena.layout.slots if s.operand.name == name)
    start = index * arena.layout.set_bytes + slot.offset
    return start, start + slot.size


def test_inputs_and_poison(filled: tuple[Arena, list[Tensors]]) -> None:
    """Every set holds its own inputs on pages of their own; outputs hold poison, which is NaN, and all else
    guard bytes, others in each band."""
    arena, sets = filled
    assert all(place(arena, i, name)[0] % 4096 == 0 for i in (0, 1) for name in ("out", "x"))
    view = worker_view(arena)
    everything = torch.ones(arena.size, dtype=torch.bool)
    for index, inputs in enumerate(sets):
        start, end = place(arena, index, "x")
        assert torch.equal(view[start:end], inputs["x"].reshape(-1).view(torch.uint8))
        everything[start:end] = False
        start, end = place(arena, index, "out")
        assert bool(view[start:end].view(torch.float32).isnan().all())
        everything[start:end] = False
    assert view[everything].unique().tolist() == [0xA3, 0xA4, 0xA5]


def test_a_copy_beyond_both_operands_shows(filled: tuple[Arena, list[Tensors]]) -> None:
    """What lies behind the input differs from what lies behind the output."""
    arena, _ = filled
    view, (_, read), (_, written) = worker_view(arena), place(arena, 1, "x"), place(arena, 1, "out")
    view[written : written + 4] = view[read : read + 4]
    assert arena.results(arena.snapshot())[1].changed_guards == ("x",)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("operand", "side", "expected"),
    [("out", -1, "out"), ("out", 1, "x"), ("x", -1, "x"), ("x", 1, "x")],
)
def test_guard_bands(
    filled: tuple[Arena, list[Tensors]], index: int, operand: str, side: int, expected: str
) -> None:
    """One byte before or behind an operand is noticed, in its own set only."""
    arena, _ = filled
    start, end = place(arena, index, operand)
    worker_view(arena)[start - 1 if side < 0 else end] ^= 1
    results = arena.results(arena.snapshot())
    assert results[index].changed_guards == (expected,)
    assert results[1 - index].changed_guards == ()


def test_changed_input(filled: tuple[Arena, list[Tensors]]) -> None:
    """One bit of an input is noticed, even a sign of zero that compares equal."""
    arena, sets = filled
    sets[1]["x"][0, 0] = 0.0
    start, _ = place(arena, 1, "x")
    worker_view(arena)[start : start + 4] = torch.tensor([0, 0, 0, 0x80], dtype=torch.uint8)
    results = arena.results(arena.snapshot())
    assert [r.changed_inputs for r in results] == [(), ("x",)]


@pytest.mark.parametrize(("start", "size"), [(0, 0), (0, 7), (0, 8), (0, 16), (4, 16), (8, 24), (8, 25)])
def test_every_changed_bit_is_seen(start: int, size: int) -> None:
    """At any size and offset, equal bytes are equal and one changed bit anywhere is a difference."""
    one = torch.randint(0, 256, (64,), dtype=torch.uint8)
    two = one.clone()
    assert _same_bytes(one[start:][:size], two[start:][:size])
    for bit in range(8 * size):
        two[start + bit // 8] ^= 1 << bit % 8
        assert not _same_bytes(one[start:][:size], two[start:][:size])
        two[start + bit // 8] ^= 1 << bit % 8


def test_partial_operand_keeps_what_its_mask_leaves_out() -> None:
    """A `partial` operand may change where its mask is true, and in no byte elsewhere."""
    problem = problem_of("masked_scale")
    inputs = problem.make_inputs()
    mask = inputs["mask"].reshape(-1)
    with Arena(Layout(problem), [inputs], 0xFF) as arena:
        view, (start, end) = worker_view(arena), place(arena, 0, "y")
        view[start:end].view(torch.float32)[mask] = 0.0
        assert arena.results(arena.snapshot())[0].changed_inputs == ()
        view[start + 4 * int((~mask).nonzero()[0])] ^= 1
        assert arena.results(arena.snapshot())[0].changed_inputs == ("y where mask is false",)


def test_snapshot_is_private(filled: tuple[Arena, list[Tensors]]) -> None:
    """What a worker writes after the snapshot is not in it."""
    arena, _ = filled
    snapshot = arena.snapshot()
    worker_view(arena).zero_()
    result = arena.results(snapshot)[0]
    assert (result.changed_inputs, result.changed_guards) == ((), ())
    assert bool(result.outputs[0].isnan().all())


def test_size_and_seals_are_sealed(filled: tuple[Arena, list[Tensors]]) -> None:
    """A worker can neither shrink the file under the judge nor grow it, nor seal it against writing."""
    arena, _ = filled
    theirs = os.open(f"/proc/self/fd/{descriptor_of(arena)}", os.O_RDWR)
    for size in (arena.size - mmap.PAGESIZE, arena.size + mmap.PAGESIZE):
        with pytest.raises(PermissionError):
            os.ftruncate(theirs, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(theirs, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(theirs)


def test_gaps_of_a_strided_operand_are_guarded() -> None:
    """Bytes between the elements of a stepped operand may only be read, like the operand itself."""
    problem = problem_of("scale")
    with Arena(Layout(problem, "stepped"), [problem.make_inputs()], 0xFF) as arena:
        start, _ = place(arena, 0, "x")
        worker_view(arena)[start + 4] ^= 1  # the first byte of the gap behind the first element
        assert arena.results(arena.snapshot())[0].changed_inputs == ("x",)


def test_a_kept_descriptor_holds_no_memory() -> None:
    """A worker that keeps descriptors cannot make the judge pay for every arena that it ever saw."""
    memory = HostMemory(1 << 20)
    memory.data.fill_(1)
    kept = os.dup(memory.descriptor)
    try:
        assert os.fstat(kept).st_blocks * 512 == 1 << 20
        memory.close()
        assert os.fstat(kept).st_blocks == 0
        assert os.fstat(kept).st_size == 1 << 20  # who still maps it reads zeros, and is not killed
    finally:
        os.close(kept)


@pytest.mark.parametrize("arrangement", ["contiguous", "transposed", "stepped", "expanded", "misaligned"])
@pytest.mark.parametrize("name", ["scale", "masked_scale", "two_outputs", "axpy", "matmul"])
def test_layouts_round_trip(name: str, arrangement: Arrangement) -> None:
    """Whatever the layout, a worker that maps what it is told sees the operands' values, and writes back."""
    problem = problem_of(name)
    inputs = fit_layout(problem, problem.make_inputs(), arrangement)
    arena = Arena(Layout(problem, arrangement), [inputs], 0xFF)
    data = worker_view(arena)
    outputs = []
    for slot, told in zip(arena.layout.slots, arena.layout.describe(), strict=True):
        flat = data[slot.offset : slot.offset + slot.size].view(slot.dtype)
        strides = told.get("strides")
        assert (strides is None) == (slot.strides is None)
        seen = (
            flat.reshape(slot.shape) if strides is None else flat.as_strided(slot.shape, slot.strides or ())
        )
        if slot.operand.role != "out":
            assert torch.equal(seen, inputs[slot.operand.name])
        if slot.operand.role != "in":
            flat.copy_(torch.arange(flat.numel()).to(flat))
            outputs.append(seen.clone())
    result = arena.results(arena.snapshot())[0]
    assert result.changed_inputs == (() if name != "masked_scale" else ("y where mask is false",))
    assert result.changed_guards == ()
    assert all(torch.equal(a, b) for a, b in zip(result.outputs, outputs, strict=True))
    del data, flat, seen
    arena.close()
