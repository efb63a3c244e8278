"""Instructions of a warp: shuffles, votes, reductions, matrices and atomics, on the emulated runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.device.emulated.gpu import Gpu, per_lane, run_lanes

WARP = 32
_SHUFFLES = {"up": 0, "down": 31, "bfly": 31, "idx": 31}
_WIDTHS = (32, 8)


def _shuffle_body() -> str:
    lines = []
    number = 0
    for mode, clamp in _SHUFFLES.items():
        for width in _WIDTHS:
            c = (WARP - width) << 8 | clamp
            lines.append(
                f"shfl.sync.{mode}.b32 %o{number}|%p, %i0, 3, {c}, -1; selp.u32 %o{number + 1}, 1, 0, %p;"
            )
            number += 2
    return "\n".join(lines)


_VOTES = """
setp.ne.u32 %p, %i0, 0;
vote.sync.ballot.b32 %o0, %p, -1;
vote.sync.any.pred %q, %p, -1; selp.u32 %o1, 1, 0, %q;
vote.sync.all.pred %q, !%p, -1; selp.u32 %o2, 1, 0, %q;
vote.sync.uni.pred %q, %p, -1; selp.u32 %o3, 1, 0, %q;
match.any.sync.b32 %o4, %i1, -1;
match.all.sync.b32 %o5|%q, %i2, -1; selp.u32 %o6, 1, 0, %q;
redux.sync.add.u32 %o7, %i3, -1;
redux.sync.min.s32 %o8, %i3, -1;
redux.sync.max.u32 %o9, %i3, -1;
redux.sync.xor.b32 %o10, %i3, -1;
elect.sync %o11|%q, -1; selp.u32 %o12, 1, 0, %q;
activemask.b32 %o13;
setp.lt.u32 %p, %t, 16; mov.u32 %o14, 0; mov.u32 %o15, 0;
@%p redux.sync.add.s32 %o14, %i3, 0xffff;
@!%p vote.sync.ballot.b32 %o15, %p, 0xffff0000;
"""

_MATRIX_TURN = """
{ .reg .b32 %a, %b; .shared .align 16 .b8 tile[1024];
mov.u32 %a, tile; shl.b32 %b, %t, 4; add.s32 %b, %a, %b;
st.shared.v4.u32 [%b], {%i0, %i1, %i2, %i3};
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%o0, %o1, %o2, %o3}, [%b];
ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%o4, %o5}, [%b];
movmatrix.sync.aligned.m8n8.trans.b16 %o6, %o0;
bar.sync 0;
stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%b], {%o0, %o1, %o2, %o3};
bar.sync 0;
ld.shared.v4.u32 {%o8, %o9, %o10, %o11}, [%b];
bar.sync 0;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%b], {%o0, %o1, %o2, %o3};
bar.sync 0;
ld.shared.v4.u32 {%o12, %o13, %o14, %o15}, [%b];
mov.u32 %o7, 0; }
"""

_ATOMICS = """
{ .reg .f32 %f; .reg .b64 %c; .shared .align 16 .b32 cell[16]; .reg .b32 %a, %z, %old; .reg .b16 %h;
mov.u32 %a, cell; mov.u32 %z, 0;
setp.lt.u32 %p, %t, 16; shl.b32 %old, %t, 2; add.s32 %old, %a, %old; @%p st.shared.u32 [%old], %z;
bar.sync 0;
atom.shared.add.u32 %o0, [%a], 1;
red.shared.max.s32 [%a+4], %i0;
red.shared.or.b32 [%a+8], %i0;
mov.b32 %f, 0f3F800000; red.shared.add.f32 [%a+12], %f;
atom.shared.inc.u32 %o1, [%a+16], 4;
atom.shared.cas.b32 %o2, [%a+20], 0, %i0;
mov.b16 %h, 0x3C00; red.shared.add.noftz.f16 [%a+24], %h;
atom.relaxed.cta.shared::cta.exch.b32 %o3, [%a+28], %t;
bar.sync 0;
ld.shared.v4.u32 {%o4, %o5, %o6, %o7}, [%a];
ld.shared.v4.u32 {%o8, %o9, %o10, %o11}, [%a+16]; }
"""

# name, m, k, bits of A and B, type of A and B, of C and D
_SHAPES = [
    ("f16", 16, 16, "f32"), ("bf16", 16, 8, "f32"), ("f16", 16, 8, "f16"), ("tf32", 16, 8, "f32"),
    ("tf32", 16, 4, "f32"), ("s8", 16, 32, "s32"), ("u8", 16, 16, "s32"), ("s8", 8, 16, "s32"),
    ("s4", 16, 64, "s32"), ("u4", 8, 32, "s32"), ("e4m3", 16, 32, "f32"), ("e5m2", 16, 16, "f32"),
    ("f64", 8, 4, "f64"), ("f64", 16, 8, "f64"),
]  # fmt: skip
_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "e4m3": 8,
    "e5m2": 8,
    "f64": 64,
}


def _words(type: str, m: int, k: int, result: str) -> tuple[int, int, int]:
    """32-bit words of a lane's fragments of A, B, and C."""
    bits = _BITS[type]
    return (
        m * k * bits // 1024,
        8 * k * bits // 1024,
        m * 8 // 32 * {"f64": 2, "f16": 1}.get(result, 1) // (2 if result == "f16" else 1),
    )


def _mma(type: str, m: int, k: int, result: str) -> str:
    a, b, c = _words(type, m, k, result)
    name = f"mma_{type}_{m}_{k}_{result}"
    head, tail, unit = "", "", 1
    if type == "f64":
        unit = 2
        total = (a + b + c) // 2
        head = ".reg .b64 %w<32>;" + "".join(
            f"mov.b64 %w{i}, {{%i{2 * i}, %i{2 * i + 1}}};" for i in range(total)
        )
        tail = "".join(f"mov.b64 {{%o{2 * i}, %o{2 * i + 1}}}, %w{20 + i};" for i in range(c // 2))
    prefix = "%w" if type == "f64" else "%i"

    def group(start: int, count: int) -> str:
        return "{" + ", ".join(f"{prefix}{(start + i)}" for i in range(count // unit)) + "}"

    d = "{" + ", ".join(f"%w{20 + i}" if type == "f64" else f"%o{i}" for i in range(c // unit)) + "}"
    operands = ", ".join([d, group(0, a), group(a // unit, b), group((a + b) // unit, c)])
    types = f"{result}.{type}.{type}.{result}"
    body = f"{{ {head} mma.sync.aligned.m{m}n8k{k}.row.col.{types} {operands}; {tail} }}"
    return per_lane(name, body, count=c, given=a + b + c)


_WMMA = """
.visible .entry wmma(.param .u64 a, .param .u64 b, .param .u64 c)
{
.reg .b32 %a<8>, %b<8>; .reg .f32 %c<8>; .reg .b64 %p, %q, %r;
ld.param.u64 %p, [a]; ld.param.u64 %q, [b]; ld.param.u64 %r, [c];
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%p], 16;
wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {B}, [%q], 24;
wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {C}, [%r];
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {C}, {A}, {B}, {C};
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%r], {C};
ret;
}
"""
for _name in "ABC":
    _WMMA = _WMMA.replace(f"{{{_name}}}", "{" + ", ".join(f"%{_name.lower()}{i}" for i in range(8)) + "}")

_COPIES = """
.visible .entry copies(.param .u64 in, .param .u64 out)
{
.reg .b64 %in, %out, %from; .reg .b32 %t, %at, %bar, %v, %w, %base;
.reg .pred %first, %done; .reg .b64 %state;
.shared .align 16 .b8 tile[512]; .shared .align 8 .b64 barrier;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
mov.u32 %base, tile; mov.u32 %bar, barrier; setp.eq.u32 %first, %t, 0;
@%first mbarrier.init.shared::cta.b64 [%bar], 1;
@%first fence.mbarrier_init.release.cluster;
bar.sync 0;
@!%first bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%base], [%in], 128, [%bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;
@!%done bra WAIT;
shl.b32 %at, %t, 2; add.s32 %at, %at, %base; ld.shared.u32 %v, [%at];
shl.b32 %w, %t, 4; cvt.u64.u32 %from, %w; add.s64 %from, %from, %in;
setp.lt.u32 %done, %t, 8; shl.b32 %w, %t, 4; add.s32 %w, %w, %base;
@%done cp.async.cg.shared.global [%w+256], [%from+128], 16;
@%done cp.async.ca.shared.global [%w+384], [%from], 16, 8;
cp.async.commit_group; cp.async.wait_group 0;
bar.sync 0;
ld.shared.u32 %w, [%at+256]; add.s32 %v, %v, %w; ld.shared.u32 %w, [%at+384]; add.s32 %v, %v, %w;
st.shared.u32 [%at+128], %v;
fence.proxy.async.shared::cta;
bar.sync 0;
@!%first bra DONE;
cp.async.bulk.global.shared::cta.bulk_group [%out], [%base+128], 128;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE: ret;
}
"""

KERNELS = [
    _COPIES,
    _WMMA,
    per_lane("shuffles", _shuffle_body(), count=16),
    per_lane("votes", _VOTES, count=16),
    per_lane("matrices", _MATRIX_TURN, count=16),
    per_lane("atomics", _ATOMICS, count=12),
    *(_mma(*shape) for shape in _SHAPES),
]


@pytest.fixture(scope="module")
def gpu(cudart: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    one = Gpu(cudart, KERNELS, tmp_path_factory.mktemp("warps"))
    yield one
    one.close()


def test_shuffles(gpu: Gpu) -> None:
    """Every mode, over the warp and in segments of 8 lanes."""
    words = np.arange(WARP * 4, dtype=np.uint32).reshape(WARP, 4) * 7
    got = run_lanes(gpu, "shuffles", words, 16)
    number = 0
    for mode in _SHUFFLES:
        for width in _WIDTHS:
            for lane in range(WARP):
                first = lane // width * width
                place = lane - first
                source = {"up": place - 3, "down": place + 3, "bfly": place ^ 3, "idx": 3}[mode]
                inside = 0 <= source < width
                value = words[first + source if inside else lane, 0]
                assert got[lane, number] == value and got[lane, number + 1] == inside, (mode, width, lane)
            number += 2


def test_votes_matches_and_reductions(gpu: Gpu) -> None:
    """Over the warp, and over halves of it that run apart."""
    rng = np.random.default_rng(1)
    words = np.stack(
        [
            rng.integers(0, 2, WARP),
            rng.integers(0, 3, WARP),
            np.full(WARP, 9),
            rng.integers(0, 1 << 32, WARP),
        ],
        1,
    ).astype(np.uint32)
    got = run_lanes(gpu, "votes", words, 16)
    bits = sum(int(one) << lane for lane, one in enumerate(words[:, 0]))
    column = words[:, 3]
    same = [sum(1 << j for j in range(WARP) if words[j, 1] == words[i, 1]) for i in range(WARP)]
    expected = {
        0: bits, 1: 1, 2: 0, 3: 0, 4: same, 5: 0xFFFFFFFF, 6: 1,
        7: int(column.sum(dtype=np.uint64)) & 0xFFFFFFFF,
        8: int(column.view(np.int32).min()) & 0xFFFFFFFF, 9: int(column.max()),
        10: int(np.bitwise_xor.reduce(column)),
        13: 0xFFFFFFFF,
    }  # fmt: skip
    for number, value in expected.items():
        assert (got[:, number] == np.array(value, dtype=np.uint32)).all(), (number, got[:, number], value)
    assert got[:, 12].sum() == 1 and (got[:, 11] == np.flatnonzero(got[:, 12])[0]).all()
    low = int(column[:16].sum(dtype=np.uint64)) & 0xFFFFFFFF
    assert (got[:16, 14] == low).all() and (got[16:, 14] == 0).all() and (got[:, 15] == 0).all()


def test_matrices_of_16_bit_elements(gpu: Gpu) -> None:
    """ldmatrix, movmatrix and stmatrix, plain and transposed."""
    words = np.random.default_rng(2).integers(0, 1 << 32, (WARP, 4), dtype=np.uint32)
    got = run_lanes(gpu, "matrices", words, 16)
    tiles = words.view(np.uint16).reshape(4, 8, 8)

    def fragment(tile: NDArray[np.uint16]) -> NDArray[np.uint32]:
        return np.ascontiguousarray(tile).view(np.uint32).reshape(WARP)

    for number in range(4):
        assert (got[:, number] == fragment(tiles[number])).all()
    for number in range(2):
        assert (got[:, 4 + number] == fragment(tiles[number].T)).all()
    assert (got[:, 6] == fragment(tiles[0].T)).all()
    turned = np.ascontiguousarray(tiles.transpose(0, 2, 1)).view(np.uint32).reshape(WARP, 4)
    assert (got[:, 8:12] == turned).all() and (got[:, 12:16] == words).all()


def test_atomics(gpu: Gpu) -> None:
    """Every lane's operation counts once, and each gets a value that stood there."""
    words = np.random.default_rng(3).integers(1, 1 << 31, (WARP, 4), dtype=np.uint32)
    got = run_lanes(gpu, "atomics", words, 12)
    column = words[:, 0]
    assert sorted(got[:, 0]) == list(range(WARP))
    last = got[0, 4:]
    assert last[0] == WARP and last[1] == column.max() and last[2] == np.bitwise_or.reduce(column)
    assert last[3:4].view(np.float32)[0] == WARP and last[4] == WARP % 5
    assert sorted(got[:, 1]) == sorted(lane % 5 for lane in range(WARP))
    winner = last[5]
    assert winner in column and (got[:, 2] == 0).sum() == 1 and set(got[:, 2]) <= {0, winner}
    assert np.array([last[6]], dtype=np.uint32).view(np.float16)[0] == WARP
    assert last[7] < WARP


def _encoded(type: str, values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(..., n) small integers as little-endian bytes of a type."""
    if type == "f64":
        return values.astype("<f8").view(np.uint8)
    if type == "f16":
        return values.astype("<f2").view(np.uint8)
    full = values.astype("<f4")
    if type == "tf32":
        return full.view(np.uint8)
    if type == "bf16":
        return np.ascontiguousarray(full.view(np.uint16)[..., 1::2]).view(np.uint8)
    if type == "e5m2":
        return np.ascontiguousarray(values.astype("<f2").view(np.uint8)[..., 1::2])
    if type == "e4m3":
        codes = {0: 0, 1: 0x38, 2: 0x40, 3: 0x44, 4: 0x48}
        return np.vectorize(lambda v: codes[abs(int(v))] | (0x80 if v < 0 else 0))(values).astype(np.uint8)
    whole = values.astype(np.int8).view(np.uint8)
    return whole if type in ("s8", "u8") else (whole[..., ::2] & 15) | (whole[..., 1::2] << 4)


@pytest.mark.parametrize(("type", "m", "k", "result"), _SHAPES)
def test_mma(gpu: Gpu, type: str, m: int, k: int, result: str) -> None:
    """D = A B + C of small integers is exact in every shape and type."""
    rng = np.random.default_rng(4)
    low = 0 if type[0] == "u" else -4
    a = rng.integers(low, 5, (m, k)).astype(np.float64)
    b = rng.integers(low, 5, (k, 8)).astype(np.float64)
    c = rng.integers(-9, 9, (m, 8)).astype(np.float64)
    count_a, count_b, count_c = _words(type, m, k, result)
    width = 8 if type == "f64" else 4
    # Registers: `chunk` of a row's bytes, one word per lane of four; A alternates between rows g and g + 8.
    rows = _encoded(type, a).reshape(m // 8, 8, -1, 4, width)  # half, group, chunk, lane, bytes
    columns = _encoded(type, np.ascontiguousarray(b.T)).reshape(8, -1, 4, width)
    left = rows.transpose(1, 3, 2, 0, 4).reshape(WARP, 4 * count_a)
    right = columns.transpose(0, 2, 1, 3).reshape(WARP, 4 * count_b)
    kind = {"f32": "<f4", "f16": "<f2", "s32": "<i4", "f64": "<f8"}[result]
    sums = c.astype(kind).reshape(m // 8, 8, 4, 2).transpose(1, 2, 0, 3).reshape(WARP, -1)
    words = np.concatenate([left, right, np.ascontiguousarray(sums).view(np.uint8)], 1)
    got = run_lanes(gpu, f"mma_{type}_{m}_{k}_{result}", np.ascontiguousarray(words).view(np.uint32), count_c)
    product = got.view(kind).reshape(8, 4, m // 8, 2).transpose(2, 0, 1, 3).reshape(m, 8)
    assert (product == a @ b + c).all()


def test_wmma(gpu: Gpu) -> None:
    """Fragments are loaded with a stride, multiplied and stored."""
    rng = np.random.default_rng(5)
    a = rng.integers(-4, 5, (16, 16)).astype(np.float16)
    b = rng.integers(-4, 5, (16, 24)).astype(np.float16)  # columns of B, 24 elements apart
    c = rng.integers(-9, 9, (16, 16)).astype(np.float32)
    expected = a.astype(np.float32) @ b[:, :16].T.astype(np.float32) + c
    assert gpu.launch("wmma", [a, b, c]) == 0, gpu.findings()
    assert (c == expected).all()


def test_asynchronous_copies(gpu: Gpu) -> None:
    """A bulk copy on an mbarrier, cp.async with a zero-filled half, and a bulk store."""
    words = np.arange(64, dtype=np.uint32) * 3
    out = np.zeros(WARP, dtype=np.uint32)
    assert gpu.launch("copies", [words, out]) == 0, gpu.findings()
    half = np.where(np.arange(WARP) % 4 < 2, words[:WARP], 0)
    assert (out == words[:WARP] + words[WARP:] + half).all() and gpu.findings() == []
