"""Matrices of a warp (9.7.14: ldmatrix, stmatrix, movmatrix, mma) and of a warp group (9.7.15: wgmma)."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import Row, rows

_FLOAT8 = "e4m3 e5m2"

_COPIES = rows(
    """
9.7.14.5.15 ldmatrix.sync.aligned.m8n8.N.trans?.S?.b16 | d{N}:b32 [a] |
 load_matrix<{trans}>(t, d, {a}, {space}, {site})
9.7.14.5.16 stmatrix.sync.aligned.m8n8.N.trans?.S?.b16 | [a] c{N}:b32 |
 store_matrix<{trans}>(t, c, {a}, {space}, {site})
9.7.14.5.17 movmatrix.sync.aligned.m8n8.trans.b16 | d:b32 a:b32 | transposed_matrix(t, {a}, {site})
""",
    {"N": "x1 x2 x4", "S": "shared shared::cta"},
)

# The stride s is that of a dense matrix where it is left out.
_WMMA = rows(
    """
9.7.14.4.3 wmma.load.a.sync.aligned.row?.col?.M.S?.T | d{}:b32 [a] s:u32?0 |
 move_fragment<Element::{T}, {m}, {k}, {row}, false>(t, d, {a}, {s}, {space}, {site})
9.7.14.4.3 wmma.load.b.sync.aligned.row?.col?.M.S?.T | d{}:b32 [a] s:u32?0 |
 move_fragment<Element::{T}, {k}, {n}, {row}, false>(t, d, {a}, {s}, {space}, {site})
9.7.14.4.3 wmma.load.c.sync.aligned.row?.col?.M.S?.T | d{}:b32 [a] s:u32?0 |
 move_fragment<Element::{T}, {m}, {n}, {row}, false>(t, d, {a}, {s}, {space}, {site})
9.7.14.4.4 wmma.store.d.sync.aligned.row?.col?.M.S?.T | [a] c{}:b32 s:u32?0 |
 move_fragment<Element::{T}, {m}, {n}, {row}, true>(t, c, {a}, {s}, {space}, {site})
9.7.14.4.5 wmma.mma.sync.aligned.L.R.M.D.C.satfinite? | d{}:b32 a{}:b32 b{}:b32 c{}:b32 |
 multiply_fragments<{m}, {n}, {k}, Element::f16, Element::f16, Element::{C}, Element::{D}, {satfinite}>(
 t, a, b, c, d, {site})
9.7.14.4.5 wmma.mma.sync.aligned.L.R.M.D.A.A.C.satfinite? | d{}:b32 a{}:b32 b{}:b32 c{}:b32 |
 multiply_fragments<{m}, {n}, {k}, Element::{A}, Element::{A}, Element::{C}, Element::{D}, {satfinite}>(
 t, a, b, c, d, {site})
""",
    {
        "M": "m16n16k16 m32n8k16 m8n32k16 m16n16k8",
        "L": "row col",
        "R": "row col",
        "S": "global shared shared::cta",
        "T": "f16 bf16 tf32 s8 u8 f32 s32",
        "A": "bf16 tf32 s8 u8",
        "C": "f16 f32 s32",
        "D": "f16 f32 s32",
    },
)


def _multiply(shapes: str, result: str, a: str, word: str = "b32") -> list[Row]:
    """mma: all shapes of m8 and m16 whose fragments follow the common pattern of 9.7.14.5."""
    return rows(
        """
9.7.14.5.14 mma.sync.aligned.M.row.col.satfinite?.D.A.B.D | d=c{}:W a{}:W b{}:W c{}:W |
 multiply_matrices<{m}, {k}, Element::{A}, Element::{B}, Element::{D}, {satfinite}>(t, a, b, c, {site})
""".replace("W", word),
        {"M": shapes, "D": result, "A": a, "B": a},
    )


WARP_MATRIX = [
    *_COPIES,
    *_WMMA,
    *_multiply("m16n8k8 m16n8k16", "f16 f32", "f16"),
    *_multiply("m16n8k8 m16n8k16", "f32", "bf16"),
    *_multiply("m16n8k4 m16n8k8", "f32", "tf32"),
    *_multiply("m16n8k16 m16n8k32", "f16 f32", _FLOAT8),
    *_multiply("m8n8k4 m16n8k4 m16n8k8", "f64", "f64", word="b64"),
    *_multiply("m8n8k16 m16n8k16 m16n8k32", "s32", "s8 u8"),
    *_multiply("m8n8k32 m16n8k32 m16n8k64", "s32", "s4 u4"),
]


def _group_multiply(k: int, result: str, a: str) -> list[Row]:
    """wgmma: i and j are -1 where A or B is negated, x and y 1 where it is transposed."""
    shapes = " ".join(f"m64n{n}k{k}" for n in range(8, 257, 8))
    return rows(
        """
9.7.15.5.2 wgmma.mma_async.sync.aligned.M.satfinite?.D.A.B |
 +d{}:b32 a:u64 b:u64 p:pred i:s32?1 j:s32?1 x:s32?0 y:s32?0 |
 wgmma_issue(t, Wgmma{{shape}, {x} != 0, {flags}, false, {satfinite}}, d, std::size(d), nullptr, {a}, {ends})
9.7.15.5.2 wgmma.mma_async.sync.aligned.M.satfinite?.D.A.B |
 +d{}:b32 a{4}:b32 b:u64 p:pred i:s32?1 j:s32?1 y:s32?0 |
 wgmma_issue(t, Wgmma{{shape}, false, {flags}, true, {satfinite}}, d, std::size(d), a, 0, {ends})
""",
        {
            "M": shapes,
            "D": result,
            "A": a,
            "B": a,
            "shape": "{m}, {n}, {k}, Element::{D}, Element::{A}, Element::{B}",
            "flags": "{y} != 0, {i} < 0, {j} < 0",
            "ends": "{b}, {p}, {site}",
        },
    )


GROUP_MATRIX = [
    *_group_multiply(16, "f16 f32", "f16"),
    *_group_multiply(16, "f32", "bf16"),
    *_group_multiply(8, "f32", "tf32"),
    *_group_multiply(32, "f16 f32", _FLOAT8),
    *_group_multiply(32, "s32", "s8 u8"),
    *rows(
        """
9.7.15.7.1 wgmma.fence.sync.aligned | - | wgmma_fence(t)
9.7.15.7.2 wgmma.commit_group.sync.aligned | - | wgmma_commit(t)
9.7.15.7.3 wgmma.wait_group.sync.aligned | a:u32 | wgmma_wait(t, {a}, {site})
"""
    ),
]
