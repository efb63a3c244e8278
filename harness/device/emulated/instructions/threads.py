"""Threads together: control flow (9.7.12), synchronization (9.7.13), matrices of a warp (9.7.14: ldmatrix,
stmatrix, movmatrix, wmma, mma) and of a warp group (9.7.15: wgmma), and the rest (9.7.19).

The stride s of wmma is that of a dense matrix where it is left out. Of wgmma i and j are -1 where A or B is
negated, x and y 1 where it is transposed.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
# Control flow
A: inc dec
9.7.12.3 bra.uni? | - | @branch
9.7.12.4 brx.idx.uni? | - | @indexed_branch
9.7.12.5 call.uni? | - | @call
9.7.12.6 ret.uni? | - | return
9.7.12.7 exit | - | exit_thread(t)
9.7.19.2 nanosleep.u32 | a:u32 | yield_hint(t)
9.7.19.4 trap | - | trap(t, {site})
9.7.19.5 setmaxnreg.A.sync.aligned.u32 | a:u32 | (void)0
# Synchronization
M: and or; W: bar barrier; D: launch_dependents wait; L: cta gl sys; O: release relaxed
G: cta cluster gpu sys; F: sc acq_rel acquire release; Y: global shared::cta shared::cluster
9.7.13.1 bar.cta?.sync | a:u32 b:u32?0 | bar_sync(t, {a}, {b}, {site})
9.7.13.1 bar.cta?.red.popc.u32 | d:u32 a:u32 b:u32?0 c:pred | bar_red(t, {a}, {b}, {c}, {site}).yes
9.7.13.1 bar.cta?.red.M.pred | d:pred a:u32 b:u32?0 c:pred | bar_red(t, {a}, {b}, {c}, {site}).{M}_()
9.7.13.1 barrier.cta?.sync.aligned? | a:u32 b:u32?0 | bar_sync(t, {a}, {b}, {site}, {aligned})
9.7.13.1 barrier.cta?.red.popc.aligned?.u32 | d:u32 a:u32 b:u32?0 c:pred |
 bar_red(t, {a}, {b}, {c}, {site}, {aligned}).yes
9.7.13.1 barrier.cta?.red.M.aligned?.pred | d:pred a:u32 b:u32?0 c:pred |
 bar_red(t, {a}, {b}, {c}, {site}, {aligned}).{M}_()
9.7.13.1 W.cta?.arrive.aligned? | a:u32 b:u32 | bar_arrive(t, {a}, {b}, {site})
9.7.13.2 bar.warp.sync | a:u32 | warp_sync(t, {a}, {site})
9.7.13.3 barrier.cluster.arrive.O?.aligned? | - | cluster_arrive(t, {site})
9.7.13.3 barrier.cluster.wait.acquire?.aligned? | - | cluster_wait(t, {site})
9.7.13.4 membar.L | - | memory_fence(t, {site})
9.7.13.4 fence.F?.G | - | memory_fence(t, {site})
9.7.13.4 fence.mbarrier_init.release.cluster | - | memory_fence(t, {site})
9.7.13.4 fence.proxy.async.Y? | - | fence_proxy_async(t, {site})
9.7.13.13 griddepcontrol.D | - | (void)0
# Warps
M: up down bfly idx; V: all any uni; B: b32 b64; A: add min max; T: u32 s32; L: and or xor
9.7.9.6 shfl.sync.M.b32 | d|q:b32 a:b32 b:u32 c:u32 m:u32 |
 shuffle(t, Shuffle::{M}, {a}, {b}, {c}, {m}, {site}, second)
9.7.13.9 vote.sync.ballot.b32 | d:b32 a:pred m:u32 | ballot(t, {a}, {m}, {site}).yes
9.7.13.9 vote.sync.V.pred | d:pred a:pred m:u32 | ballot(t, {a}, {m}, {site}).{V}()
9.7.13.10 match.any.sync.B | d:b32 a:B m:u32 | match_any(t, {a}, {m}, {site})
9.7.13.10 match.all.sync.B | d|q:b32 a:B m:u32 | match_all(t, {a}, {m}, {site}, second)
9.7.13.11 activemask.b32 | d:b32 | active_mask(t, {site})
9.7.13.12 redux.sync.A.T | d:T a:T m:u32 | reduce_lanes<Atomic::{A}_>(t, {a}, {m}, {site})
9.7.13.12 redux.sync.L.b32 | d:b32 a:b32 m:u32 | reduce_lanes<Atomic::{L}_>(t, {a}, {m}, {site})
9.7.13.14 elect.sync | d|q:b32 m:u32 | elect_lane(t, {m}, {site}, second)
# Matrices of a warp
N: x1 x2 x4; S: shared shared::cta
9.7.14.5.15 ldmatrix.sync.aligned.m8n8.N.trans?.S?.b16 | d{N}:b32 [a] |
 load_matrix<{trans}>(t, d, {a}, {space}, {site})
9.7.14.5.16 stmatrix.sync.aligned.m8n8.N.trans?.S?.b16 | [a] c{N}:b32 |
 store_matrix<{trans}>(t, c, {a}, {space}, {site})
9.7.14.5.17 movmatrix.sync.aligned.m8n8.trans.b16 | d:b32 a:b32 | transposed_matrix(t, {a}, {site})
M: m16n16k16 m32n8k16 m8n32k16 m16n16k8; L: row col; R: L; S: global shared shared::cta
T: f16 bf16 tf32 s8 u8 f32 s32; A: bf16 tf32 s8 u8; C: f16 f32 s32; D: C
place: {a}, {s}, {space}, {site}; sums: Element::{C}, Element::{D}, {satfinite}
9.7.14.4.3 wmma.load.a.sync.aligned.row?.col?.M.S?.T | d{}:b32 [a] s:u32?0 |
 move_fragment<Element::{T}, {m}, {k}, {row}, false>(t, d, {place})
9.7.14.4.3 wmma.load.b.sync.aligned.row?.col?.M.S?.T | d{}:b32 [a] s:u32?0 |
 move_fragment<Element::{T}, {k}, {n}, {row}, false>(t, d, {place})
9.7.14.4.3 wmma.load.c.sync.aligned.row?.col?.M.S?.T | d{}:b32 [a] s:u32?0 |
 move_fragment<Element::{T}, {m}, {n}, {row}, false>(t, d, {place})
9.7.14.4.4 wmma.store.d.sync.aligned.row?.col?.M.S?.T | [a] c{}:b32 s:u32?0 |
 move_fragment<Element::{T}, {m}, {n}, {row}, true>(t, c, {place})
9.7.14.4.5 wmma.mma.sync.aligned.L.R.M.D.C.satfinite? | d{}:b32 a{}:b32 b{}:b32 c{}:b32 |
 multiply_fragments<{m}, {n}, {k}, Element::f16, Element::f16, {sums}>(t, a, b, c, d, {site})
9.7.14.4.5 wmma.mma.sync.aligned.L.R.M.D.A.A.C.satfinite? | d{}:b32 a{}:b32 b{}:b32 c{}:b32 |
 multiply_fragments<{m}, {n}, {k}, Element::{A}, Element::{A}, {sums}>(t, a, b, c, d, {site})
types: Element::{A}, Element::{B}, Element::{D}
M: m8n8k4 m16n8k4 m16n8k8; D: f64; A: f64; B: f64
9.7.14.5.14 mma.sync.aligned.M.row.col.satfinite?.D.A.B.D | d=c{}:b64 a{}:b64 b{}:b64 c{}:b64 |
 multiply_matrices<{m}, {k}, {types}, {satfinite}>(t, a, b, c, {site})
M: m16n8k8 m16n8k16; D: f16 f32; A: f16; B: f16
9.7.14.5.14 mma.sync.aligned.M.row.col.satfinite?.D.A.B.D | d=c{}:b32 a{}:b32 b{}:b32 c{}:b32 |
 multiply_matrices<{m}, {k}, {types}, {satfinite}>(t, a, b, c, {site})
or M: m16n8k8 m16n8k16; D: f32; A: bf16; B: bf16
or M: m16n8k4 m16n8k8; D: f32; A: tf32; B: tf32
or M: m16n8k16 m16n8k32; D: f16 f32; A: e4m3 e5m2; B: e4m3 e5m2
or M: m8n8k16 m16n8k16 m16n8k32; D: s32; A: s8 u8; B: s8 u8
or M: m8n8k32 m16n8k32 m16n8k64; D: s32; A: s4 u4; B: s4 u4
# Matrices of a warp group
shape: {m}, {n}, {k}, Element::{D}, Element::{A}, Element::{B}; flags: {y} != 0, {i} < 0, {j} < 0
M: m64n[8..256]k16; D: f16 f32; A: f16; B: f16
9.7.15.5.2 wgmma.mma_async.sync.aligned.M.satfinite?.D.A.B |
 +d{}:b32 a:u64 b:u64 p:pred i:s32?1 j:s32?1 x:s32?0 y:s32?0 | wgmma_issue(t,
 Wgmma{{shape}, {x} != 0, {flags}, false, {satfinite}}, d, std::size(d), nullptr, {a}, {b}, {p}, {site})
9.7.15.5.2 wgmma.mma_async.sync.aligned.M.satfinite?.D.A.B |
 +d{}:b32 a{4}:b32 b:u64 p:pred i:s32?1 j:s32?1 y:s32?0 | wgmma_issue(t,
 Wgmma{{shape}, false, {flags}, true, {satfinite}}, d, std::size(d), a, 0, {b}, {p}, {site})
or M: m64n[8..256]k16; D: f32; A: bf16; B: bf16
or M: m64n[8..256]k8; D: f32; A: tf32; B: tf32
or M: m64n[8..256]k32; D: f16 f32; A: e4m3 e5m2; B: e4m3 e5m2
or M: m64n[8..256]k32; D: s32; A: s8 u8; B: s8 u8
9.7.15.7.1 wgmma.fence.sync.aligned | - | wgmma_fence(t)
9.7.15.7.2 wgmma.commit_group.sync.aligned | - | wgmma_commit(t)
9.7.15.7.3 wgmma.wait_group.sync.aligned | a:u32 | wgmma_wait(t, {a}, {site})
"""
