"""mbarrier objects (9.7.13.15) and asynchronous copies (9.7.9.25): cp.async, bulk and tensor copies."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import Emitter, Slots, elements, rows, space_of
from harness.device.emulated.ptx import split

MBARRIER = rows(
    """
9.7.13.15.9 mbarrier.init.S?.b64 | [a] b:u32 | mbarrier_init(t, {a}, {space}, {b}, {site})
9.7.13.15.10 mbarrier.inval.S?.b64 | [a] | mbarrier_invalidate(t, {a}, {space}, {site})
9.7.13.15.11 mbarrier.expect_tx.O?.G?.S?.b64 | [a] b:u32 | mbarrier_expect(t, {a}, {space}, {b}, {site})
9.7.13.15.12 mbarrier.complete_tx.O?.G?.S?.b64 | [a] b:u32 | mbarrier_complete(t, {a}, {space}, {b}, {site})
9.7.13.15.13 mbarrier.arrive.noComplete?.O?.G?.S?.b64 | d:b64 [a] b:u32?1 |
 mbarrier_arrive(t, {a}, {space}, {b}, {site})
9.7.13.15.13 mbarrier.arrive.expect_tx.O?.G?.S?.b64 | d:b64 [a] b:u32 |
 mbarrier_arrive_expect(t, {a}, {space}, 1, {b}, {site})
9.7.13.15.14 mbarrier.arrive_drop.O?.G?.S?.b64 | d:b64 [a] b:u32?1 |
 mbarrier_arrive_drop(t, {a}, {space}, {b}, 0, {site})
9.7.13.15.15 cp.async.mbarrier.arrive.noinc?.S?.b64 | [a] |
 cp_async_mbarrier_arrive(t, {a}, {space}, {noinc}, {site})
9.7.13.15.16 mbarrier.test_wait.O?.G?.S?.b64 | d:pred [a] b:u64 | mbarrier_test(t, {a}, {space}, {b}, {site})
9.7.13.15.16 mbarrier.test_wait.parity.O?.G?.S?.b64 | d:pred [a] b:u32 |
 mbarrier_test_parity(t, {a}, {space}, {b}, {site})
9.7.13.15.16 mbarrier.try_wait.O?.G?.S?.b64 | d:pred [a] b:u64 c:u32?0 |
 mbarrier_try(t, {a}, {space}, {b}, {site})
9.7.13.15.16 mbarrier.try_wait.parity.O?.G?.S?.b64 | d:pred [a] b:u32 c:u32?0 |
 mbarrier_try_parity(t, {a}, {space}, {b}, {site})
9.7.13.15.17 mbarrier.pending_count.b64 | d:u32 a:b64 | mbarrier_pending({a})
""",
    {"S": "shared shared::cta shared::cluster", "O": "release relaxed acquire", "G": "cta cluster"},
)


def _copy(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """cp.async [shared], [global], size{, source size or ignore}{, policy}"""
    to, source, size, *rest = operands
    rest = rest[:-1] if slots["H"] else rest
    length = emitter.read("u32", size)
    used = length
    if rest:
        ignore = emitter.is_predicate(rest[0])
        used = (
            f"({emitter.read('pred', rest[0])} ? 0u : {length})" if ignore else emitter.read("u32", rest[0])
        )
    addresses = f"{emitter.address(to, 'shared')}, {emitter.address(source, 'global')}"
    return f"cp_async(t, {addresses}, {length}, {used}, {emitter.site()});"


CP_ASYNC = rows(
    """
9.7.9.25.3.1 cp.async.C.S.global.H?.P? | - | @_copy
9.7.9.25.3.2 cp.async.commit_group | - | cp_async_commit(t)
9.7.9.25.3.3 cp.async.wait_group | a:u32 | cp_async_wait(t, {a}, {site})
9.7.9.25.3.3 cp.async.wait_all | - | cp_async_wait_all(t, {site})
""",
    {"C": "ca cg", "S": "shared shared::cta", "H": "L2::cache_hint", "P": "L2::64B L2::128B L2::256B"},
    _copy,
)

_TYPES = {
    "u32": "U32", "s32": "S32", "u64": "U64", "s64": "S64", "b32": "U32", "b64": "U64",
    "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64",
}  # fmt: skip


def _bulk(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """cp.async.bulk [to], [from], size{, [mbarrier]}{, CTA mask}{, policy}"""
    to, source, size, *rest = operands
    fields = {
        "destination": emitter.address(to, slots["D"]),
        "source": emitter.address(source, slots["S"]),
        "bytes": emitter.read("u32", size),
        "destination_space": f"Space::{space_of(slots, 'D')}",
        "source_space": f"Space::{space_of(slots)}",
    }
    if "X" in slots:
        fields |= {"mbarrier": emitter.address(rest[0], "shared"), "completes_mbarrier": "true"}
    if slots.get("M"):
        fields |= {"multicast": "true", "blocks": emitter.read("u16", rest[1])}
    if "A" in slots:
        fields |= {"reduce": f"Reduce::{slots['A'].capitalize()}", "type": f"Type::{_TYPES[slots['T']]}"}
    return f"bulk_copy(t, BulkCopy{{{_designated(fields)}}}, {emitter.site()});"


def _tensor(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """Loads: [shared], [map, {coordinates}], [mbarrier]{, mask}; stores: [map, {coordinates}], [shared]."""
    loads = slots["D"].startswith("shared")
    shared, tensor = (operands[0], operands[1]) if loads else (operands[1], operands[0])
    place = split(tensor.strip()[1:-1])
    if slots.get("L", "") not in ("", "tile") or len(place) != 2:
        return None
    coordinates = [emitter.read("s32", one) for one in elements(place[1])]
    fields = {
        "store": str(not loads).lower(),
        "map": emitter.read("u64", place[0]),
        "rank": str(len(coordinates)),
        "coordinates": f"{{{', '.join(coordinates)}}}",
        "shared": f"(u32){emitter.address(shared, 'shared')}",
    }
    if loads:
        fields["mbarrier"] = emitter.address(operands[2], "shared")
    if slots.get("M"):
        fields |= {"multicast": "true", "blocks": emitter.read("u16", operands[3])}
    if "A" in slots:
        fields["reduce"] = f"Reduce::{slots['A'].capitalize()}"
    return f"tensor_copy(t, TensorCopy{{{_designated(fields)}}}, {emitter.site()});"


def _designated(fields: dict[str, str]) -> str:
    """C++ initializers of some fields, in their order; the others are zero."""
    return ", ".join(f".{name} = {value}" for name, value in fields.items())


def _nothing(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    return ";"


_SHARED = "shared::cluster shared::cta"
_WORDS = {
    "H": "L2::cache_hint",
    "M": "multicast::cluster",
    "X": "mbarrier::complete_tx::bytes",
    "N": "1d 2d 3d 4d 5d",
    "L": "tile im2col im2col_no_offs im2col::w im2col::w::128 tile::gather4 tile::scatter4",
    "A": "add min max inc dec and or xor",
    "T": " ".join(_TYPES),
}
_LOADS = rows(
    """
9.7.9.25.4.1 cp.async.bulk.D.S.X.M?.H? | - | @_bulk
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.X.M?.H? | - | @_tensor
""",
    _WORDS | {"D": _SHARED, "S": "global"},
    _bulk,
    _tensor,
)
_STORES = rows(
    """
9.7.9.25.4.1 cp.async.bulk.D.S.bulk_group.H? | - | @_bulk
9.7.9.25.4.2 cp.reduce.async.bulk.D.S.bulk_group.H?.A.noftz?.T | - | @_bulk
9.7.9.25.5.2 cp.async.bulk.tensor.N.D.S.L?.bulk_group.H? | - | @_tensor
9.7.9.25.5.3 cp.reduce.async.bulk.tensor.N.D.S.A.L?.bulk_group.H? | - | @_tensor
""",
    _WORDS | {"D": "global", "S": "shared::cta"},
    _bulk,
    _tensor,
)
_INSIDE = rows(
    """
9.7.9.25.4.1 cp.async.bulk.D.S.X | - | @_bulk
9.7.9.25.4.2 cp.reduce.async.bulk.D.S.X.A.T | - | @_bulk
9.7.9.25.4.3 cp.async.bulk.prefetch.L2.global.H? | [a] b:u32 | (void)0
9.7.9.25.5.4 cp.async.bulk.prefetch.tensor.N.L2.global.L?.H? | - | @_nothing
9.7.9.25.6.1 cp.async.bulk.commit_group | - | bulk_commit(t)
9.7.9.25.6.2 cp.async.bulk.wait_group.read? | a:u32 | bulk_wait(t, {a}, {read}, {site})
""",
    _WORDS | {"D": "shared::cluster", "S": "shared::cta"},
    _bulk,
    _nothing,
)
BULK = [*_LOADS, *_STORES, *_INSIDE]
