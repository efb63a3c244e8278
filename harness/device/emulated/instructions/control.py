"""Control flow (9.7.12), synchronization and communication of threads (9.7.13), and the rest (9.7.19)."""

from __future__ import annotations

from harness.device.emulated.instructions.movement import SCOPES, SPACES
from harness.device.emulated.instructions.rows import CACHE_HINT, Emitter, Slots, rows


def _branch(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    return emitter.branch(operands[0])


def _indexed_branch(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    cases = [f"case {i}: {emitter.branch(one)}" for i, one in enumerate(emitter.targets(operands[1]))]
    return f"switch ({emitter.read('u32', operands[0])}) {{ {' '.join(cases)} }}"


def _call(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    return emitter.call(operands)


CONTROL = rows(
    """
9.7.12.3 bra.uni? | - | @_branch
9.7.12.4 brx.idx.uni? | - | @_indexed_branch
9.7.12.5 call.uni? | - | @_call
9.7.12.6 ret.uni? | - | return
9.7.12.7 exit | - | exit_thread(t)
9.7.19.1 brkpt | - | (void)0
9.7.19.2 nanosleep.u32 | a:u32 | yield_hint(t)
9.7.19.3 pmevent | a:u32 | (void)0
9.7.19.4 trap | - | trap(t, {site})
9.7.19.5 setmaxnreg.A.sync.aligned.u32 | a:u32 | (void)0
""",
    {"A": "inc dec"},
    _branch,
    _indexed_branch,
    _call,
)

SYNCHRONIZATION = rows(
    """
9.7.13.1 bar.cta?.sync | a:u32 b:u32?0 | bar_sync(t, {a}, {b}, {site})
9.7.13.1 bar.cta?.red.popc.u32 | d:u32 a:u32 c:pred | bar_red(t, {a}, 0, {c}, {site}).yes
9.7.13.1 bar.cta?.red.popc.u32 | d:u32 a:u32 b:u32 c:pred | bar_red(t, {a}, {b}, {c}, {site}).yes
9.7.13.1 bar.cta?.red.M.pred | d:pred a:u32 c:pred | bar_red(t, {a}, 0, {c}, {site}).{M}_()
9.7.13.1 bar.cta?.red.M.pred | d:pred a:u32 b:u32 c:pred | bar_red(t, {a}, {b}, {c}, {site}).{M}_()
9.7.13.1 barrier.cta?.sync.aligned? | a:u32 b:u32?0 | bar_sync(t, {a}, {b}, {site}, {aligned})
9.7.13.1 barrier.cta?.red.popc.aligned?.u32 | d:u32 a:u32 c:pred |
 bar_red(t, {a}, 0, {c}, {site}, {aligned}).yes
9.7.13.1 barrier.cta?.red.popc.aligned?.u32 | d:u32 a:u32 b:u32 c:pred |
 bar_red(t, {a}, {b}, {c}, {site}, {aligned}).yes
9.7.13.1 barrier.cta?.red.M.aligned?.pred | d:pred a:u32 c:pred |
 bar_red(t, {a}, 0, {c}, {site}, {aligned}).{M}_()
9.7.13.1 barrier.cta?.red.M.aligned?.pred | d:pred a:u32 b:u32 c:pred |
 bar_red(t, {a}, {b}, {c}, {site}, {aligned}).{M}_()
9.7.13.1 W.cta?.arrive.aligned? | a:u32 b:u32 | bar_arrive(t, {a}, {b}, {site})
9.7.13.2 bar.warp.sync | a:u32 | warp_sync(t, {a}, {site})
9.7.13.3 barrier.cluster.arrive.O?.aligned? | - | cluster_arrive(t, {site})
9.7.13.3 barrier.cluster.wait.acquire?.aligned? | - | cluster_wait(t, {site})
9.7.13.4 membar.L | - | memory_fence(t, {site})
9.7.13.4 fence.F?.G | - | memory_fence(t, {site})
9.7.13.4 fence.mbarrier_init.release.cluster | - | memory_fence(t, {site})
9.7.13.4 fence.F.Z.cluster | - | memory_fence(t, {site})
9.7.13.4 fence.proxy.async.Y? | - | fence_proxy_async(t, {site})
9.7.13.4 fence.proxy.alias | - | memory_fence(t, {site})
9.7.13.13 griddepcontrol.D | - | (void)0
""",
    {
        "W": "bar barrier",
        "M": "and or",
        "O": "release relaxed",
        "L": "cta gl sys",
        "F": "sc acq_rel acquire release",
        "G": SCOPES,
        "Z": "sync_restrict::shared::cta sync_restrict::shared::cluster",
        "Y": "global shared::cta shared::cluster",
        "D": "launch_dependents wait",
    },
)

ATOMIC = rows(
    """
9.7.13.5 atom.O?.G?.S?.A.H?.T | d:T [a] b:T | {atomic}(t, {a}, {space}, {site}, {b})
9.7.13.5 atom.O?.G?.S?.cas.H?.T | d:T [a] b:T c:T |
 atomic<Atomic::cas_, {T}>(t, {a}, {space}, {site}, {b}, {c})
9.7.13.5 atom.O?.G?.S?.A.noftz.H?.T | d:T [a] b:T | {atomic}(t, {a}, {space}, {site}, {b})
9.7.13.5 atom.O?.G?.S?.A.noftz?.H?.V.T | d=c{V}:T [a] c{V}:T | {vector}(t, {a}, {space}, {site}, c)
9.7.13.6 red.O?.G?.S?.A.H?.T | [a] b:T | {atomic}(t, {a}, {space}, {site}, {b})
9.7.13.6 red.O?.G?.S?.A.noftz.H?.T | [a] b:T | {atomic}(t, {a}, {space}, {site}, {b})
9.7.13.6 red.O?.G?.S?.A.noftz?.H?.V.T | [a] c{V}:T | {vector}(t, {a}, {space}, {site}, c)
""",
    {
        "O": "relaxed acquire release acq_rel",
        "G": SCOPES,
        "S": SPACES,
        "A": "and or xor exch add min max inc dec",
        "H": CACHE_HINT,
        "T": "b16 b32 b64 b128 u32 s32 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2",
        "V": "v2 v4 v8",
        "atomic": "atomic<Atomic::{A}_, {T}>",
        "vector": "atomic_vector<Atomic::{A}_>",
    },
)

WARP = rows(
    """
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
""",
    {
        "M": "up down bfly idx",
        "V": "all any uni",
        "B": "b32 b64",
        "A": "add min max",
        "T": "u32 s32",
        "L": "and or xor",
    },
)
