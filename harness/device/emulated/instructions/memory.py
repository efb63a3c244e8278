"""Data movement (9.7.9): registers, memory, addresses, asynchronous copies; atomics and mbarrier (9.7.13).

Hints of caches and priorities change nothing that a program computes.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
# Data movement
C: ca cg cs lu cv wb wt; F: L2::evict_normal L2::evict_first L2::evict_last; H: L2::cache_hint; V: v2 v4 v8
E: L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate
P: L2::64B L2::128B L2::256B; T: b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64
A: shared shared::cta shared::cluster; R: param param::entry param::func; B: const global local R; S: B A
G: cta cluster gpu sys; O: volatile relaxed acquire release; at: {a}, {space}, {site}
9.7.9.8 ld.R.V?.T | d{V}:iT [a:R] | parameter_load(d, {a})
9.7.9.8 ld.weak?.S?.C?.E?.F?.H?.P?.V?.T | d{V}:iT [a] | load(t, d, {at})
9.7.9.8 ld.mmio?.O.G?.S?.C?.E?.F?.H?.P?.V?.T | d{V}:iT [a] | load_ordered(t, d, {at})
9.7.9.11 st.R.V?.T | [a:R] c{V}:bT | parameter_store(c, {a})
9.7.9.11 st.weak?.S?.C?.E?.F?.H?.V?.T | [a] c{V}:bT | store(t, c, {at})
9.7.9.11 st.mmio?.O.G?.S?.C?.E?.F?.H?.V?.T | [a] c{V}:bT | store_ordered(t, c, {at})
S: global; Q: const global local param; L: L1 L2 L2::evict_last L2::evict_normal tensormap
Y: L2::evict_unchanged L2::evict_first; X: L2::evict_last L2::evict_normal Y
9.7.9.9 ld.S.C?.nc.E?.F?.H?.P?.V?.T | d{V}:iT [a] | load(t, d, {at})
9.7.9.15 prefetch.Q?.L | [a] | (void)0
9.7.9.18 createpolicy.fractional.X.Y?.b64 | d:b64 a:f32?0 | 0
T: pred b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64; M: f4e b4e rc8 ecl ecr rc16; U: u32 u64; S: B A
9.7.9.3 mov.T | d:bT a:bT | {a}
9.7.9.4 mov.T | - | @move_vector
9.7.9.7 prmt.b32 | d:b32 a:b32 b:b32 c:b32 | permuted({a}, {b}, {c})
9.7.9.7 prmt.b32.M | d:b32 a:b32 b:b32 c:b32 | permuted({a}, {b}, {c}, Permute::{M})
9.7.9.19 isspacep.S | d:pred a:u64 | in_space(t, {a}, {space})
9.7.9.20 cvta.A.U | d:U a:U | generic_from_shared(t, {a})
9.7.9.20 cvta.to.A.U | d:U a:U | shared_from_generic(t, {a})
9.7.9.20 cvta.to?.B.U | d:U a:U | {a}
9.7.9.23 mapa.shared::cluster.U | d:U a:U b:u32 | map_shared(t, {a}, {b}, {site})
9.7.9.23 mapa.u64 | d:u64 a:u64 b:u32 | map_generic(t, {a}, {b}, {site})
9.7.9.24 getctarank.shared::cluster.U | d:u32 a:U | shared_rank({a})
9.7.9.24 getctarank.u64 | d:u32 a:u64 | shared_rank(shared_from_generic(t, {a}))
# Atomic operations
O: relaxed acquire release acq_rel; A: and or xor exch add min max inc dec
T: b16 b32 b64 b128 u32 s32 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2
atomic: atomic<Atomic::{A}_, {T}>(t, {at}, {b}); vector: atomic_vector<Atomic::{A}_>(t, {at}, c)
9.7.13.5 atom.O?.G?.S?.A.noftz?.H?.T | d:T [a] b:T | {atomic}
9.7.13.5 atom.O?.G?.S?.cas.H?.T | d:T [a] b:T c:T | atomic<Atomic::cas_, {T}>(t, {at}, {b}, {c})
9.7.13.5 atom.O?.G?.S?.A.noftz?.H?.V.T | d=c{V}:T [a] c{V}:T | {vector}
9.7.13.6 red.O?.G?.S?.A.noftz?.H?.T | [a] b:T | {atomic}
9.7.13.6 red.O?.G?.S?.A.noftz?.H?.V.T | [a] c{V}:T | {vector}
# mbarrier
S: shared shared::cta shared::cluster; O: release relaxed acquire; G: cta cluster; W: test_wait try_wait
at: t, {a}, {space}
9.7.13.15.9 mbarrier.init.S?.b64 | [a] b:u32 | mbarrier_init({at}, {b}, {site})
9.7.13.15.10 mbarrier.inval.S?.b64 | [a] | mbarrier_invalidate({at}, {site})
9.7.13.15.11 mbarrier.expect_tx.O?.G?.S?.b64 | [a] b:u32 | mbarrier_expect({at}, {b}, {site})
9.7.13.15.12 mbarrier.complete_tx.O?.G?.S?.b64 | [a] b:u32 | mbarrier_complete({at}, {b}, {site})
9.7.13.15.13 mbarrier.arrive.noComplete?.O?.G?.S?.b64 | d:b64 [a] b:u32?1 |
 mbarrier_arrive({at}, {b}, 0, {site})
9.7.13.15.13 mbarrier.arrive.expect_tx.O?.G?.S?.b64 | d:b64 [a] b:u32 | mbarrier_arrive({at}, 1, {b}, {site})
9.7.13.15.14 mbarrier.arrive_drop.O?.G?.S?.b64 | d:b64 [a] b:u32?1 | mbarrier_arrive_drop({at}, {b}, {site})
9.7.13.15.15 cp.async.mbarrier.arrive.noinc?.S?.b64 | [a] | cp_async_mbarrier_arrive({at}, {noinc}, {site})
9.7.13.15.16 mbarrier.W.O?.G?.S?.b64 | d:pred [a] b:u64 c:u32?0 | mbarrier_try({at}, {b}, {site})
9.7.13.15.16 mbarrier.W.parity.O?.G?.S?.b64 | d:pred [a] b:u32 c:u32?0 | mbarrier_try({at}, {b}, {site})
9.7.13.15.17 mbarrier.pending_count.b64 | d:u32 a:b64 | u32({a} >> 1)
# Asynchronous copies
C: ca cg; S: shared shared::cta
9.7.9.25.3.1 cp.async.C.S.global.H?.P? | [a] [b:global] c:u32 e:u32?c |
 cp_async(t, {a}, {b}, {c}, {e}, {site})
9.7.9.25.3.1 cp.async.C.S.global.H?.P? | [a] [b:global] c:u32 e:pred |
 cp_async(t, {a}, {b}, {c}, {e} ? 0u : {c}, {site})
9.7.9.25.3.2 cp.async.commit_group | - | cp_async_commit(t)
9.7.9.25.3.3 cp.async.wait_group | a:u32 | cp_async_wait(t, {a})
9.7.9.25.3.3 cp.async.wait_all | - | cp_async_wait_all(t)
# Bulk and tensor copies
M: multicast::cluster; X: mbarrier::complete_tx::bytes; N: 1d 2d 3d 4d 5d; L: tile
A: add min max inc dec and or xor; T: u32 s32 u64 s64 b32 b64 f16 bf16 f32 f64
places: .destination = {a}, .source = {b}, .bytes = {c}, {spaces}
spaces: .destination_space = Space::{D!c}, .source_space = Space::{S!c}
loads: .mbarrier = {e}, .completes_mbarrier = true; blocks: .multicast = true, .blocks = {f}
reduces: .reduce = Atomic::{A}_, .type = Element::{T}
tile: .map = {a}, .rank = {rank}, .coordinates = {{c}}, .shared = {b}
load: .store = false, {tile}, .mbarrier = {e}; store: .store = true, {tile}
D: shared::cluster shared::cta; S: global
9.7.9.25.4.1 cp.async.bulk.D.S.X.H? | [a:D] [b:S] c:u32 [e:shared] |
 bulk_copy(t, BulkCopy{{places}, {loads}}, {site})
9.7.9.25.4.1 cp.async.bulk.D.S.X.M.H? | [a:D] [b:S] c:u32 [e:shared] f:u16 |
 bulk_copy(t, BulkCopy{{places}, {loads}, {blocks}}, {site})
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.X.H? | [b:shared] [a{c}] [e:shared] |
 tensor_copy(t, TensorCopy{{load}}, {site})
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.X.M.H? | [b:shared] [a{c}] [e:shared] f:u16 |
 tensor_copy(t, TensorCopy{{load}, {blocks}}, {site})
D: global; S: shared::cta
9.7.9.25.4.1 cp.async.bulk.D.S.bulk_group.H? | [a:D] [b:S] c:u32 | bulk_copy(t, BulkCopy{{places}}, {site})
9.7.9.25.4.2 cp.reduce.async.bulk.D.S.bulk_group.H?.A.noftz?.T | [a:D] [b:S] c:u32 |
 bulk_copy(t, BulkCopy{{places}, {reduces}}, {site})
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.bulk_group.H? | [a{c}] [b:shared] |
 tensor_copy(t, TensorCopy{{store}}, {site})
9.7.9.25.5.3 cp.reduce.async.bulk.tensor.N.D.S.A.L?.bulk_group.H? | [a{c}] [b:shared] |
 tensor_copy(t, TensorCopy{{store}, .reduce = Atomic::{A}_}, {site})
D: shared::cluster; S: shared::cta
9.7.9.25.4.1 cp.async.bulk.D.S.X | [a:D] [b:S] c:u32 [e:shared] |
 bulk_copy(t, BulkCopy{{places}, {loads}}, {site})
9.7.9.25.4.2 cp.reduce.async.bulk.D.S.X.A.T | [a:D] [b:S] c:u32 [e:shared] |
 bulk_copy(t, BulkCopy{{places}, {loads}, {reduces}}, {site})
9.7.9.25.4.3 cp.async.bulk.prefetch.L2.global.H? | [a] b:u32 | (void)0
9.7.9.25.5.4 cp.async.bulk.prefetch.tensor.N.L2.global.L?.H? | [a{c}] | (void)0
9.7.9.25.6.1 cp.async.bulk.commit_group | - | bulk_commit(t)
9.7.9.25.6.2 cp.async.bulk.wait_group.read? | a:u32 | bulk_wait(t, {a})
"""
