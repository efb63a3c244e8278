"""Control flow (9.7.12), synchronization and communication of threads (9.7.13), and the rest (9.7.19)."""

from __future__ import annotations

from harness.device.emulated.instructions.movement import SPACES, space_of
from harness.device.emulated.instructions.rows import Emitter, Row, Slots, elements


def _branch(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    return emitter.label(operands[0])


def _call(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    return emitter.call(operands)


CONTROL = [
    Row("9.7.12.3", "bra.uni?", "", _branch),
    Row("9.7.12.5", "call.uni?", "", _call),
    Row("9.7.12.6", "ret.uni?", "", "return"),
    Row("9.7.12.7", "exit", "", "exit_thread(t)"),
    Row("9.7.19.1", "brkpt", "", "(void)0"),
    Row("9.7.19.2", "nanosleep.u32", "a:u32", "yield_hint(t)"),
    Row("9.7.19.3", "pmevent", "a:u32", "(void)0"),
    Row("9.7.19.4", "trap", "", "trap(t, {site})"),
    Row("9.7.19.5", "setmaxnreg.A.sync.aligned.u32", "a:u32", "(void)0", A="inc dec"),
]

_SCOPE = "cta cluster gpu sys"


def _reduction_barrier(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """bar.red d, a{, b}, {!}c"""
    count = emitter.read("u32", operands[2]) if len(operands) > 3 else "0"
    vote = f"bar_red(t, {emitter.read('u32', operands[1])}, {count}, {emitter.read('pred', operands[-1])}, {emitter.site()})"
    value = {"popc": "votes.yes", "and": "votes.yes == votes.all", "or": "votes.yes != 0"}[slots["M"]]
    type = "u32" if slots["M"] == "popc" else "pred"
    return f"{{ Votes votes = {vote}; {emitter.write(type, operands[0], value)} }}"


SYNCHRONIZATION = [
    Row("9.7.13.1", "bar.cta?.sync", "a:u32 b:u32?0", "bar_sync(t, {a}, {b}, {site})"),
    Row("9.7.13.1", "bar.cta?.arrive", "a:u32 b:u32", "bar_arrive(t, {a}, {b}, {site})"),
    Row("9.7.13.1", "bar.cta?.red.M.T", "", _reduction_barrier, M="popc and or", T="u32 pred"),
    Row("9.7.13.1", "barrier.cta?.sync.aligned?", "a:u32 b:u32?0", "bar_sync(t, {a}, {b}, {site})"),
    Row("9.7.13.1", "barrier.cta?.arrive.aligned?", "a:u32 b:u32", "bar_arrive(t, {a}, {b}, {site})"),
    Row("9.7.13.1", "barrier.cta?.red.M.aligned?.T", "", _reduction_barrier, M="popc and or", T="u32 pred"),
    Row("9.7.13.2", "bar.warp.sync", "a:u32", "warp_sync(t, {a}, {site})"),
    Row(
        "9.7.13.3", "barrier.cluster.arrive.O?.aligned?", "", "cluster_arrive(t, {site})", O="release relaxed"
    ),
    Row("9.7.13.3", "barrier.cluster.wait.acquire?.aligned?", "", "cluster_wait(t, {site})"),
    Row("9.7.13.4", "membar.G", "", "memory_fence(t, {site})", G="cta gl sys"),
    Row("9.7.13.4", "fence.M?.G", "", "memory_fence(t, {site})", M="sc acq_rel acquire release", G=_SCOPE),
    Row("9.7.13.4", "fence.mbarrier_init.release.cluster", "", "memory_fence(t, {site})"),
    Row(
        "9.7.13.4",
        "fence.O.sync_restrict::S.cluster",
        "",
        "memory_fence(t, {site})",
        O="acquire release",
        S="shared",
    ),
    Row("9.7.13.4", "fence.proxy.async", "", "fence_proxy_async(t, {site})"),
    Row("9.7.13.4", "fence.proxy.M", "", "fence_proxy_async(t, {site})", M="async.global async.shared::cta"),
    Row("9.7.13.4", "fence.proxy.M", "", "memory_fence(t, {site})", M="alias"),
    Row("9.7.13.13", "griddepcontrol.M", "", "(void)0", M="launch_dependents wait"),
]


def _atomic(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """atom d, [a], b{, c}"""
    type, (to, address, *values) = slots["T"], operands
    if slots.get("H"):
        values = values[:-1]
    arguments = f"t, {emitter.address(address, slots['S'])}, Space::{space_of(slots)}, {emitter.site()}"
    given = ", ".join(emitter.read(type, one) for value in values for one in elements(value))
    if not slots.get("V"):
        return emitter.write(type, to, f"atomic<Atomic::{slots['A']}_, {type}>({arguments}, {given})")
    writes = (
        ""
        if to == "_"
        else " ".join(emitter.write(type, one, f"v[{i}]") for i, one in enumerate(elements(to)))
    )
    return f"{{ {type} v[] = {{{given}}}; atomic_vector<Atomic::{slots['A']}_>({arguments}, v); {writes} }}"


def _reduction(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """red [a], b"""
    return _atomic(emitter, slots, ["_", *operands])


_ATOMIC_FORMS = [
    ("A.H?.T", {"A": "and or xor", "T": "b32 b64"}),
    ("A.H?.T", {"A": "exch cas", "T": "b16 b32 b64 b128"}),
    ("A.H?.T", {"A": "add", "T": "u32 s32 u64 s64 f32 f64"}),
    ("A.H?.T", {"A": "min max", "T": "u32 s32 u64 s64"}),
    ("A.H?.T", {"A": "inc dec", "T": "u32"}),
    ("A.noftz.H?.T", {"A": "add", "T": "f16 f16x2 bf16 bf16x2"}),
    ("A.H?.V.T", {"A": "add", "V": "v2 v4", "T": "f32"}),
    ("A.noftz.H?.V.T", {"A": "add min max", "V": "v2 v4 v8", "T": "f16 f16x2 bf16 bf16x2"}),
]
_ATOMIC_SLOTS = {"O": "relaxed acquire release acq_rel", "G": _SCOPE, "S": SPACES, "H": "L2::cache_hint"}

ATOMIC = [
    Row(section, f"{opcode}.O?.G?.S?.{form}", "", handler, **_ATOMIC_SLOTS, **slots)
    for opcode, section, handler in (("atom", "9.7.13.5", _atomic), ("red", "9.7.13.6", _reduction))
    for form, slots in _ATOMIC_FORMS
]

WARP = [
    Row(
        "9.7.9.6",
        "shfl.sync.M.b32",
        "d|q:b32 a:b32 b:u32 c:u32 m:u32",
        "shuffle(t, Shuffle::{M}, {a}, {b}, {c}, {m}, {site}, second)",
        M="up down bfly idx",
    ),
    Row("9.7.13.9", "vote.sync.ballot.b32", "d:b32 a:pred m:u32", "ballot(t, {a}, {m}, {site}).yes"),
    Row(
        "9.7.13.9",
        "vote.sync.M.pred",
        "d:pred a:pred m:u32",
        "ballot(t, {a}, {m}, {site}).{M}()",
        M="all any uni",
    ),
    Row("9.7.13.10", "match.any.sync.T", "d:b32 a:T m:u32", "match_any(t, {a}, {m}, {site})", T="b32 b64"),
    Row(
        "9.7.13.10",
        "match.all.sync.T",
        "d|q:b32 a:T m:u32",
        "match_all(t, {a}, {m}, {site}, second)",
        T="b32 b64",
    ),
    Row("9.7.13.11", "activemask.b32", "d:b32", "active_mask(t, {site})"),
    Row(
        "9.7.13.12",
        "redux.sync.A.T",
        "d:T a:T m:u32",
        "reduce_lanes<Atomic::{A}_>(t, {a}, {m}, {site})",
        A="add min max",
        T="u32 s32",
    ),
    Row(
        "9.7.13.12",
        "redux.sync.A.T",
        "d:T a:T m:u32",
        "reduce_lanes<Atomic::{A}_>(t, {a}, {m}, {site})",
        A="and or xor",
        T="b32",
    ),
    Row("9.7.13.14", "elect.sync", "d|q:b32 m:u32", "elect_lane(t, {m}, {site}, second)"),
]
