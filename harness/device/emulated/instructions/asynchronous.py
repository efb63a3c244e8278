"""mbarrier objects (9.7.13.15) and asynchronous copies (9.7.9.25): cp.async, bulk and tensor copies."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import CACHE_HINT, rows

MBARRIER = rows(
    """
9.7.13.15.9 mbarrier.init.S?.b64 | [a] b:u32 | mbarrier_init(t, {a}, {space}, {b}, {site})
9.7.13.15.10 mbarrier.inval.S?.b64 | [a] | mbarrier_invalidate(t, {a}, {space}, {site})
9.7.13.15.11 mbarrier.expect_tx.O?.G?.S?.b64 | [a] b:u32 | mbarrier_expect(t, {a}, {space}, {b}, {site})
9.7.13.15.12 mbarrier.complete_tx.O?.G?.S?.b64 | [a] b:u32 | mbarrier_complete(t, {a}, {space}, {b}, {site})
9.7.13.15.13 mbarrier.arrive.noComplete?.O?.G?.S?.b64 | d:b64 [a] b:u32?1 |
 mbarrier_arrive(t, {a}, {space}, {b}, 0, {site})
9.7.13.15.13 mbarrier.arrive.expect_tx.O?.G?.S?.b64 | d:b64 [a] b:u32 |
 mbarrier_arrive(t, {a}, {space}, 1, {b}, {site})
9.7.13.15.14 mbarrier.arrive_drop.O?.G?.S?.b64 | d:b64 [a] b:u32?1 |
 mbarrier_arrive_drop(t, {a}, {space}, {b}, {site})
9.7.13.15.15 cp.async.mbarrier.arrive.noinc?.S?.b64 | [a] |
 cp_async_mbarrier_arrive(t, {a}, {space}, {noinc}, {site})
9.7.13.15.16 mbarrier.test_wait.O?.G?.S?.b64 | d:pred [a] b:u64 | mbarrier_try(t, {a}, {space}, {b}, {site})
9.7.13.15.16 mbarrier.test_wait.parity.O?.G?.S?.b64 | d:pred [a] b:u32 |
 mbarrier_try(t, {a}, {space}, {b}, {site})
9.7.13.15.16 mbarrier.try_wait.O?.G?.S?.b64 | d:pred [a] b:u64 c:u32?0 |
 mbarrier_try(t, {a}, {space}, {b}, {site})
9.7.13.15.16 mbarrier.try_wait.parity.O?.G?.S?.b64 | d:pred [a] b:u32 c:u32?0 |
 mbarrier_try(t, {a}, {space}, {b}, {site})
9.7.13.15.17 mbarrier.pending_count.b64 | d:u32 a:b64 | u32({a} >> 1)
""",
    {"S": "shared shared::cta shared::cluster", "O": "release relaxed acquire", "G": "cta cluster"},
)

CP_ASYNC = rows(
    """
9.7.9.25.3.1 cp.async.C.S.global.H?.P? | [a] [b:global] c:u32 | cp_async(t, {a}, {b}, {c}, {c}, {site})
9.7.9.25.3.1 cp.async.C.S.global.H?.P? | [a] [b:global] c:u32 e:u32 | cp_async(t, {a}, {b}, {c}, {e}, {site})
9.7.9.25.3.1 cp.async.C.S.global.H?.P? | [a] [b:global] c:u32 e:pred |
 cp_async(t, {a}, {b}, {c}, {e} ? 0u : {c}, {site})
9.7.9.25.3.2 cp.async.commit_group | - | cp_async_commit(t)
9.7.9.25.3.3 cp.async.wait_group | a:u32 | cp_async_wait(t, {a})
9.7.9.25.3.3 cp.async.wait_all | - | cp_async_wait_all(t)
""",
    {"C": "ca cg", "S": "shared shared::cta", "H": CACHE_HINT, "P": "L2::64B L2::128B L2::256B"},
)

_WORDS = {
    "H": CACHE_HINT,
    "M": "multicast::cluster",
    "X": "mbarrier::complete_tx::bytes",
    "N": "1d 2d 3d 4d 5d",
    "L": "tile",
    "A": "add min max inc dec and or xor",
    "T": "u32 s32 u64 s64 b32 b64 f16 bf16 f32 f64",
    "places": ".destination = {a}, .source = {b}, .bytes = {c}, {spaces}",
    "spaces": ".destination_space = Space::{D!c}, .source_space = Space::{S!c}",
    "loads": ".mbarrier = {e}, .completes_mbarrier = true",
    "reduces": ".reduce = Atomic::{A}_, .type = Element::{T}",
    "tile": ".map = {a}, .rank = {rank}, .coordinates = {{c}}, .shared = {b}",
    "blocks": ".multicast = true, .blocks = {f}",
}
_LOADS = rows(
    """
9.7.9.25.4.1 cp.async.bulk.D.S.X.H? | [a:D] [b:S] c:u32 [e:shared] |
 bulk_copy(t, BulkCopy{{places}, {loads}}, {site})
9.7.9.25.4.1 cp.async.bulk.D.S.X.M.H? | [a:D] [b:S] c:u32 [e:shared] f:u16 |
 bulk_copy(t, BulkCopy{{places}, {loads}, {blocks}}, {site})
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.X.H? | [b:shared] [a{c}] [e:shared] |
 tensor_copy(t, TensorCopy{.store = false, {tile}, .mbarrier = {e}}, {site})
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.X.M.H? | [b:shared] [a{c}] [e:shared] f:u16 |
 tensor_copy(t, TensorCopy{.store = false, {tile}, .mbarrier = {e}, {blocks}}, {site})
""",
    _WORDS | {"D": "shared::cluster shared::cta", "S": "global"},
)
_STORES = rows(
    """
9.7.9.25.4.1 cp.async.bulk.D.S.bulk_group.H? | [a:D] [b:S] c:u32 | bulk_copy(t, BulkCopy{{places}}, {site})
9.7.9.25.4.2 cp.reduce.async.bulk.D.S.bulk_group.H?.A.noftz?.T | [a:D] [b:S] c:u32 |
 bulk_copy(t, BulkCopy{{places}, {reduces}}, {site})
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.bulk_group.H? | [a{c}] [b:shared] |
 tensor_copy(t, TensorCopy{.store = true, {tile}}, {site})
9.7.9.25.5.3 cp.reduce.async.bulk.tensor.N.D.S.A.L?.bulk_group.H? | [a{c}] [b:shared] |
 tensor_copy(t, TensorCopy{.store = true, {tile}, .reduce = Atomic::{A}_}, {site})
""",
    _WORDS | {"D": "global", "S": "shared::cta"},
)
_OTHERS = rows(
    """
9.7.9.25.4.1 cp.async.bulk.D.S.X | [a:D] [b:S] c:u32 [e:shared] |
 bulk_copy(t, BulkCopy{{places}, {loads}}, {site})
9.7.9.25.4.2 cp.reduce.async.bulk.D.S.X.A.T | [a:D] [b:S] c:u32 [e:shared] |
 bulk_copy(t, BulkCopy{{places}, {loads}, {reduces}}, {site})
9.7.9.25.4.3 cp.async.bulk.prefetch.L2.global.H? | [a] b:u32 | (void)0
9.7.9.25.5.4 cp.async.bulk.prefetch.tensor.N.L2.global.L?.H? | [a{c}] | (void)0
9.7.9.25.6.1 cp.async.bulk.commit_group | - | bulk_commit(t)
9.7.9.25.6.2 cp.async.bulk.wait_group.read? | a:u32 | bulk_wait(t, {a})
""",
    _WORDS | {"D": "shared::cluster", "S": "shared::cta"},
)
BULK = [*_LOADS, *_STORES, *_OTHERS]
