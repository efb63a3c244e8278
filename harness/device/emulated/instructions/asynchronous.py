"""mbarrier objects (9.7.13.15) and asynchronous copies (9.7.9.25): cp.async, bulk and tensor copies."""

from __future__ import annotations

from harness.device.emulated.instructions.movement import space_of
from harness.device.emulated.instructions.rows import Emitter, Handler, Row, Slots, elements, rows
from harness.device.emulated.ptx import split


def _mbarrier(function: str, type: str, operands: str) -> Handler:
    """A call `function(t, address, space, values..., site)`; `u32=1` is an operand with a default."""

    def emit(emitter: Emitter, slots: Slots, given: list[str]) -> str | None:
        names, values = operands.split(), []
        if bool(type) == given[0].startswith("["):
            return None
        to, address, *rest = given if type else ["", *given]
        if len(rest) > len(names):
            return None
        for number, name in enumerate(names):
            kind, _, default = name.partition("=")
            if number < len(rest):
                values.append(emitter.read(kind, rest[number]))
            elif default:
                values.append(default)
        arguments = ", ".join([emitter.address(address, slots["S"]), f"Space::{space_of(slots)}", *values])
        call = f"{function.format_map(slots)}(t, {arguments}, {emitter.site()})"
        return emitter.write(type, to, call) if type else f"{call};"

    return emit


_B = {"S": "shared shared::cta shared::cluster", "O": "release relaxed acquire", "G": "cta cluster"}

MBARRIER = [
    *(
        Row(section, f"mbarrier.{syntax}.b64", "", _mbarrier(function, type, operands), _B)
        for section, syntax, function, type, operands in (
            ("9.7.13.15.9", "init.S?", "mbarrier_init", "", "u32"),
            ("9.7.13.15.10", "inval.S?", "mbarrier_invalidate", "", ""),
            ("9.7.13.15.11", "expect_tx.O?.G?.S?", "mbarrier_expect", "", "u32"),
            ("9.7.13.15.12", "complete_tx.O?.G?.S?", "mbarrier_complete", "", "u32"),
            ("9.7.13.15.13", "arrive.O?.G?.S?", "mbarrier_arrive", "b64", "u32=1"),
            ("9.7.13.15.13", "arrive.noComplete.O?.G?.S?", "mbarrier_arrive", "b64", "u32"),
            ("9.7.13.15.13", "arrive.expect_tx.O?.G?.S?", "arrive_expecting", "b64", "u32"),
            ("9.7.13.15.14", "arrive_drop.O?.G?.S?", "arrive_dropping", "b64", "u32=1"),
            ("9.7.13.15.16", "test_wait.O?.G?.S?", "mbarrier_test", "pred", "u64"),
            ("9.7.13.15.16", "test_wait.parity.O?.G?.S?", "mbarrier_test_parity", "pred", "u32"),
            ("9.7.13.15.16", "try_wait.O?.G?.S?", "try_wait", "pred", "u64 u32=0"),
            ("9.7.13.15.16", "try_wait.parity.O?.G?.S?", "try_wait_parity", "pred", "u32 u32=0"),
        )
    ),
    Row(
        "9.7.13.15.15",
        "cp.async.mbarrier.arrive.noinc?.S?.b64",
        "",
        _mbarrier("arrive_after_copies<{noinc}>", "", ""),
        _B,
    ),
    *rows("9.7.13.15.17 mbarrier.pending_count.b64 | d:u32 a:b64 | mbarrier_pending({a})"),
]


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
    loads = "X" in slots
    to_space = "Shared" if slots["D"].startswith("shared") else "Global"
    source_space = "Shared" if slots["S"].startswith("shared") else "Global"
    multicast = bool(slots.get("M"))
    fields = [
        emitter.address(to, slots["D"]),
        emitter.address(source, slots["S"]),
        emitter.read("u32", size),
        f"Space::{to_space}",
        f"Space::{source_space}",
        emitter.address(rest[0], "shared") if loads else "0",
        str(loads).lower(),
        str(multicast).lower(),
        emitter.read("u16", rest[1]) if multicast else "0",
        f"Reduce::{slots['A'].capitalize()}" if "A" in slots else "Reduce::None",
        f"Type::{_TYPES[slots['T']]}" if "T" in slots else "Type::B8",
    ]
    return f"bulk_copy(t, BulkCopy{{{', '.join(fields)}}}, {emitter.site()});"


def _tensor(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """Loads: [shared], [map, {coordinates}], [mbarrier]{, mask}; stores: [map, {coordinates}], [shared]."""
    loads = slots["D"].startswith("shared")
    shared, tensor = (operands[0], operands[1]) if loads else (operands[1], operands[0])
    found = split(tensor.strip()[1:-1])
    if slots.get("L", "") not in ("", "tile") or len(found) != 2:
        return None
    coordinates = elements(found[1])
    multicast = bool(slots.get("M"))
    fields = [
        str(not loads).lower(),
        emitter.read("u64", found[0]),
        str(len(coordinates)),
        "{" + ", ".join(emitter.read("s32", one) for one in coordinates) + "}",
        f"(u32){emitter.address(shared, 'shared')}",
        emitter.address(operands[2], "shared") if loads else "0",
        str(multicast).lower(),
        emitter.read("u16", operands[3]) if multicast else "0",
        f"Reduce::{slots['A'].capitalize()}" if "A" in slots else "Reduce::None",
        "TensorMode::Tile",
    ]
    if len(coordinates) != int(slots["N"][0]):
        return None
    return f"tensor_copy(t, TensorCopy{{{', '.join(fields)}}}, {emitter.site()});"


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
