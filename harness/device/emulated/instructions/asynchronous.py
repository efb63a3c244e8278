"""mbarrier objects (9.7.13.15) and asynchronous copies (9.7.9.25): cp.async, bulk and tensor copies."""

from __future__ import annotations

from harness.device.emulated.instructions.movement import space_of
from harness.device.emulated.instructions.rows import Emitter, Handler, Row, Slots, elements
from harness.device.emulated.ptx import split


def _mbarrier(function: str, type: str, operands: str) -> Handler:
    """A call `function(t, address, space, values..., site)`; operands are like a row's, with `c=1` as a default."""

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
    Row("9.7.13.15.9", "mbarrier.init.S?.b64", "", _mbarrier("mbarrier_init", "", "u32"), **_B),
    Row("9.7.13.15.10", "mbarrier.inval.S?.b64", "", _mbarrier("mbarrier_invalidate", "", ""), **_B),
    Row("9.7.13.15.11", "mbarrier.expect_tx.O?.G?.S?.b64", "", _mbarrier("mbarrier_expect", "", "u32"), **_B),
    Row(
        "9.7.13.15.12",
        "mbarrier.complete_tx.O?.G?.S?.b64",
        "",
        _mbarrier("mbarrier_complete", "", "u32"),
        **_B,
    ),
    Row(
        "9.7.13.15.13", "mbarrier.arrive.O?.G?.S?.b64", "", _mbarrier("mbarrier_arrive", "b64", "u32=1"), **_B
    ),
    Row(
        "9.7.13.15.13",
        "mbarrier.arrive.noComplete.O?.G?.S?.b64",
        "",
        _mbarrier("mbarrier_arrive", "b64", "u32"),
        **_B,
    ),
    Row(
        "9.7.13.15.13",
        "mbarrier.arrive.expect_tx.O?.G?.S?.b64",
        "",
        _mbarrier("arrive_expecting", "b64", "u32"),
        **_B,
    ),
    Row(
        "9.7.13.15.14",
        "mbarrier.arrive_drop.O?.G?.S?.b64",
        "",
        _mbarrier("arrive_dropping", "b64", "u32=1"),
        **_B,
    ),
    Row(
        "9.7.13.15.15",
        "cp.async.mbarrier.arrive.noinc?.S?.b64",
        "",
        _mbarrier("arrive_after_copies<{noinc}>", "", ""),
        **_B,
    ),
    Row(
        "9.7.13.15.16", "mbarrier.test_wait.O?.G?.S?.b64", "", _mbarrier("mbarrier_test", "pred", "u64"), **_B
    ),
    Row(
        "9.7.13.15.16",
        "mbarrier.test_wait.parity.O?.G?.S?.b64",
        "",
        _mbarrier("mbarrier_test_parity", "pred", "u32"),
        **_B,
    ),
    Row(
        "9.7.13.15.16", "mbarrier.try_wait.O?.G?.S?.b64", "", _mbarrier("try_wait", "pred", "u64 u32=0"), **_B
    ),
    Row(
        "9.7.13.15.16",
        "mbarrier.try_wait.parity.O?.G?.S?.b64",
        "",
        _mbarrier("try_wait_parity", "pred", "u32 u32=0"),
        **_B,
    ),
    Row("9.7.13.15.17", "mbarrier.pending_count.b64", "d:u32 a:b64", "mbarrier_pending({a})"),
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


_CP = {"S": "shared shared::cta", "H": "L2::cache_hint", "P": "L2::64B L2::128B L2::256B"}

CP_ASYNC = [
    Row("9.7.9.25.3.1", "cp.async.C.S.global.H?.P?", "", _copy, C="ca cg", **_CP),
    Row("9.7.9.25.3.2", "cp.async.commit_group", "", "cp_async_commit(t)"),
    Row("9.7.9.25.3.3", "cp.async.wait_group", "a:u32", "cp_async_wait(t, {a}, {site})"),
    Row("9.7.9.25.3.3", "cp.async.wait_all", "", "cp_async_wait_all(t, {site})"),
]

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
    """Tensor copies: [shared], [map, {coordinates}], [mbarrier] for loads, [map, {coordinates}], [shared] for stores."""
    loads = slots["D"].startswith("shared")
    shared, tensor = (operands[0], operands[1]) if loads else (operands[1], operands[0])
    found = split(tensor.strip()[1:-1])
    if slots.get("L", "").startswith("im2col") or len(found) != 2:
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


_BULK = {
    "H": "L2::cache_hint",
    "M": "multicast::cluster",
    "X": "mbarrier::complete_tx::bytes",
    "N": "1d 2d 3d 4d 5d",
}
_TILE = {"L": "tile im2col im2col_no_offs im2col::w im2col::w::128 tile::gather4 tile::scatter4"}
_LOAD, _STORE = {"D": "shared::cluster shared::cta", "S": "global"}, {"D": "global", "S": "shared::cta"}
_NEAR = {"D": "shared::cluster", "S": "shared::cta"}
_REDUCED = {"A": "add min max inc dec and or xor", "T": " ".join(_TYPES)}

BULK = [
    Row("9.7.9.25.4.1", "cp.async.bulk.D.S.X.M?.H?", "", _bulk, **_BULK, **_LOAD),
    Row("9.7.9.25.4.1", "cp.async.bulk.D.S.X", "", _bulk, **_BULK, **_NEAR),
    Row("9.7.9.25.4.1", "cp.async.bulk.D.S.bulk_group.H?", "", _bulk, **_BULK, **_STORE),
    Row("9.7.9.25.4.2", "cp.reduce.async.bulk.D.S.X.A.T", "", _bulk, **_BULK, **_NEAR, **_REDUCED),
    Row(
        "9.7.9.25.4.2",
        "cp.reduce.async.bulk.D.S.bulk_group.H?.A.noftz?.T",
        "",
        _bulk,
        **_BULK,
        **_STORE,
        **_REDUCED,
    ),
    Row("9.7.9.25.4.3", "cp.async.bulk.prefetch.L2.global.H?", "[a] b:u32", "(void)0", **_BULK),
    Row("9.7.9.25.5.2", "cp.async.bulk.tensor.N.D.S.L?.X.M?.H?", "", _tensor, **_BULK, **_LOAD, **_TILE),
    Row(
        "9.7.9.25.5.2", "cp.async.bulk.tensor.N.D.S.L?.bulk_group.H?", "", _tensor, **_BULK, **_STORE, **_TILE
    ),
    Row(
        "9.7.9.25.5.3",
        "cp.reduce.async.bulk.tensor.N.D.S.A.L?.bulk_group.H?",
        "",
        _tensor,
        A=_REDUCED["A"],
        **_BULK,
        **_STORE,
        **_TILE,
    ),
    Row(
        "9.7.9.25.5.4",
        "cp.async.bulk.prefetch.tensor.N.L2.global.L?.H?",
        "",
        lambda *_: ";",
        **_BULK,
        **_TILE,
    ),
    Row("9.7.9.25.6.1", "cp.async.bulk.commit_group", "", "bulk_commit(t)"),
    Row("9.7.9.25.6.2", "cp.async.bulk.wait_group.read?", "a:u32", "bulk_wait(t, {a}, {read}, {site})"),
]
