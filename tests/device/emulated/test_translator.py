"""The parser and the code generator: declarations, control flow, calls, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.device.emulated.codegen import translate
from harness.device.emulated.instructions import GROUPS, find
from harness.device.emulated.ptx import CannotEmulate, Module, split, variables
from tests.device.emulated.gpu import Gpu, per_lane

_SOURCE = """
.version 9.0
.target sm_90a
.file 1 "/src/kernel.cu"
.file 2 "/usr/local/cuda/include/cuda_fp16.hpp"
.global .align 4 .b8 table[8] = {1, 0, 0, 0, 2};  // eight bytes
.visible .entry first(
  .param .u64 .ptr .global .align 16 first_param_0,
  .param .align 8 .b8 first_param_1[24],
  .param .f32 first_param_2
)
.maxntid 256, 2, 1
.reqnctapercluster 4
{
  .reg .pred %p<3>;
  .loc 1 10 3
  @!%p1 bra L1; /* two
  lines */ add.s32 %r1, %r2, 3;
  .loc 1 20 3
  .loc 2 99 1, function_name $L__info0, inlined_at 1 20 3
  st.global.v2.f32 [%rd1+8], {%f1, %f2};
L1:
  { .reg .b32 t; mov.b32 t, 1; }
  ret;
}
.section .debug_str { .b8 1 }
"""


def test_a_module_is_parsed() -> None:
    """Variables, parameters, attributes, guards and the source line of every statement."""
    module = Module(_SOURCE)
    table = module.variables["table"]
    assert (table.space, table.type, table.size, table.align) == ("global", "b8", 8, 4)
    kernel = module.functions["first"]
    assert [(one.size, one.align) for one in kernel.parameters] == [(8, 8), (24, 8), (4, 4)]
    assert kernel.dimensions("maxntid") == (256, 2, 1) and kernel.dimensions("reqntid") is None
    assert kernel.dimensions("reqnctapercluster") == (4, 1, 1)
    assert kernel.body is not None
    branch, add, store = [one for one in kernel.body if one.kind == "instruction"][:3]
    assert branch.guard == (True, "%p1") and branch.mnemonic == "bra" and branch.operands == ["L1"]
    assert (module.files[branch.file], branch.row) == ("/src/kernel.cu", 10)
    assert add.operands == ["%r1", "%r2", "3"] and add.line == branch.line + 1
    assert store.operands == ["[%rd1+8]", "{%f1, %f2}"]
    assert (module.files[store.file], store.row) == ("/src/kernel.cu", 20), "the line that uses a header"
    label = next(one for one in kernel.body if one.kind == "label")
    inside = next(one for one in kernel.body if one.operands == ["t", "1"])
    assert label.text == "L1" and label.blocks == (0,) and inside.blocks == (0, 1)


def test_declarations() -> None:
    """Vectors, several dimensions, initial values without an extent, several names."""
    assert variables(".shared .v4 .f32 tile[2][3]")[0].size == 96
    assert variables(".global .u16 a, b[4]")[1].size == 8
    assert variables(".const .align 8 .f64 c[] = {1.0, 2.0, 3.0}")[0].size == 24
    assert variables(".extern .shared .align 16 .b8 dynamic[]")[0].external
    assert split("{a, b}, [c, {d, e}], f") == ["{a, b}", "[c, {d, e}]", "f"]


@pytest.mark.parametrize(
    "instruction",
    [
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1}, %r1, 0",
        "tex.1d.v4.f32.s32 {%r1, %r1, %r1, %r1}, [image, {%r1}]",
        "add.fast.f32 %r1, %r1, %r1",
        "ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1]",
        "add.s32 %r1, %r2, %undeclared",
    ],
)
def test_what_is_unknown_is_refused_by_name(instruction: str) -> None:
    """The error has the instruction, the kernel and the line; nothing is guessed."""
    text = f".visible .entry k()\n{{\n.reg .b32 %r<9>; .reg .b64 %rd<9>;\n{instruction};\nret;\n}}"
    with pytest.raises(CannotEmulate) as raised:
        translate(Module(text), "k")
    assert raised.value.instruction == instruction
    assert (raised.value.kernel, raised.value.line) == ("k", 4)


def test_every_form_names_its_section_and_is_found() -> None:
    """Each row of the tables cites the manual, and its plainest mnemonic finds it."""
    for name, rows in GROUPS.items():
        for row in rows:
            assert re.fullmatch(r"9\.7(\.\d+)+", row.section), (name, row.syntax)
            words = [one for one in row.syntax.split(".") if not one.endswith("?")]
            mnemonic = ".".join(row.words[one].split()[0] if one in row.words else one for one in words)
            assert any(found is row for found, _ in find(mnemonic)), (mnemonic, row.syntax)


_PROGRAM = """
.const .align 4 .u32 squares[4] = {0, 1, 4, 9};
.global .align 4 .u32 counter = 5;
.global .align 8 .u64 pointers[2] = {counter, generic(counter)+0};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 result) triple(.param .b32 value, .param .align 4 .b8 more[8])
{
.reg .b32 %r<4>;
ld.param.u32 %r1, [value];
ld.param.u32 %r2, [more+4];
mad.lo.s32 %r3, %r1, 3, %r2;
st.param.b32 [result], %r3;
ret;
}
"""
_BODY = """
{ .reg .b32 %r<20>; .reg .b64 %a<9>; .reg .b32 t; .local .align 8 .b8 depot[32];
and.b32 %r1, %t, 3; mul.wide.u32 %a1, %r1, 4; mov.u64 %a2, squares; add.s64 %a1, %a1, %a2;
ld.const.u32 %o0, [%a1];
ld.global.u64 %a3, [pointers+8]; ld.u32 %o1, [%a3];
{ .param .b32 p0; .param .align 4 .b8 p1[8]; .param .b32 back;
st.param.b32 [p0+0], %i0; st.param.b32 [p1+4], %t;
call.uni (back), triple, (p0, p1);
ld.param.b32 %o2, [back+0]; }
mov.u64 %a4, depot; cvta.local.u64 %a5, %a4; st.local.u32 [%a4+4], %i1; ld.u32 %o3, [%a5+4];
mov.u32 %r2, dynamic; shl.b32 %r3, %t, 2; add.s32 %r2, %r2, %r3; st.shared.u32 [%r2], %i2;
bar.sync 0; xor.b32 %r3, %r3, 4; mov.u32 %r2, dynamic; add.s32 %r2, %r2, %r3; ld.shared.u32 %o4, [%r2];
mov.u32 %o5, 0; mov.u32 %r4, 0;
LOOP: add.s32 %o5, %o5, %r4; add.s32 %r4, %r4, 1; setp.le.u32 %p, %r4, %t; @%p bra LOOP;
brx.idx %r1, targets;
targets: .branchtargets ZERO, ONE, TWO, TWO;
ZERO: mov.u32 %o6, 100; bra DONE;
ONE: mov.u32 %o6, 101; bra DONE;
TWO: mov.u32 %o6, 102;
DONE:
mov.u32 t, 7; { .reg .b32 t; mov.u32 t, 8; } mov.u32 %o7, t; }
"""


@pytest.fixture(scope="module")
def gpu(cudart: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    program = _PROGRAM + per_lane("program", _BODY, count=8)
    one = Gpu(cudart, [program], tmp_path_factory.mktemp("programs"))
    yield one
    one.close()


def test_variables_calls_and_control_flow(gpu: Gpu) -> None:
    """Constants, pointers between variables, functions, local and dynamic memory, loops, branch tables."""
    words = np.arange(128, dtype=np.uint32).reshape(32, 4)
    out = np.zeros((32, 8), dtype=np.uint32)
    assert gpu.launch("program", [words, out], shared=128) == 0, gpu.findings()
    lanes = np.arange(32)
    assert (out[:, 0] == (lanes % 4) ** 2).all() and (out[:, 1] == 5).all()
    assert (out[:, 2] == 3 * words[:, 0] + lanes).all() and (out[:, 3] == words[:, 1]).all()
    assert (out[:, 4] == words[lanes ^ 1, 2]).all() and (out[:, 5] == lanes * (lanes + 1) // 2).all()
    assert (out[:, 6] == 100 + np.minimum(lanes % 4, 2)).all() and (out[:, 7] == 7).all()
