"""The table of the compiled experts."""

from __future__ import annotations

import re

from harness.records import DeviceKernel
from tools.expert_sass import NOT_MEASURED, PAGE, ROOT, experts, page
from tools.spill_loops import spilled_in_loops


def kernel(name: str, count: int, spilled: int = 0, **loads: int) -> DeviceKernel:
    """A kernel of sm_90 with `count` instructions."""
    fields = {"architecture": "sm_90", "registers": 32, "shared_bytes": 0, "stack_bytes": 0}
    spills = {"spill_store_bytes": spilled, "spill_load_bytes": spilled}
    widths = {f"LDG.{bits[1:]}": number for bits, number in loads.items()}
    return DeviceKernel.model_validate(
        fields | spills | {"name": name, "instructions": {"all": count, **widths}}
    )


def test_a_family_is_shown_by_the_variant_with_the_widest_loads() -> None:
    """The same variant before and after where there is one; spills of all variants, by name too."""
    old = (kernel("void f<float>(int)", 9, spilled=4, w128=1), kernel("void h<1>(int)", 99, w32=1))
    now = {
        "l1/a": [
            *(
                kernel("void f<float>(int)", 7, w128=2, w16=1),
                kernel("void f<int>(int)", 70, 2, w128=1, w16=9),
            ),
            *(kernel("void g<8>(int)", 5, spilled=8), kernel("void h<2>(int)", 3, w32=1)),
        ]
    }
    looped = {"l1/a": {"void f<int>(int)": (0, 2), "void g<8>(int)": (0, 0)}}
    text = page({"l1/a": old}, now, looped)
    assert f"| l1/a | `f<float>` | 9 -> 7 | 4 / 4 -> 2 / 2 | 128 -> 128, 16 | {NOT_MEASURED} |\n" in text
    assert f"| l1/a | `g<8>` | new -> 5 | new -> 8 / 8 | new -> - | {NOT_MEASURED} |\n" in text
    assert f"| l1/a | `h<2>`, before `h<1>` | 99 -> 3 | none | 32 | {NOT_MEASURED} |\n" in text
    assert "|\n| l1/a | `f<int>` | 2 / 2 | 0 / 2 |\n| l1/a | `g<8>` | 8 / 8 | none |\n\n" in text


# As nvdisasm prints: a spill before a loop, a refill in it, one after it, and both in a slow path.
SASS = """
\t.section\t.text._Z1aPf,"ax",@progbits
        /*0000*/                   STL.64 [R1+0x8], R4 ;
        /*0010*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
        /*0020*/                   BSSY B0, `(.L_x_9) ;
.L_x_1:
        /*0030*/                   LDL.LU.64 R4, [R1+0x8] ;
        /*0040*/                   STL [R1+0x4], R9 ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
.L_x_9:
        /*0060*/                   LDL R7, [R1] ;
        /*0070*/                   EXIT ;
.L_x_3:
        /*0080*/                   STL [R1], R5 ;
        /*0090*/                   LDL.128 R8, [R1+0x10] ;
        /*00a0*/                   BRA `(.L_x_2) ;
"""


def test_spills_in_loops_are_told_from_those_beside_them() -> None:
    """Only marked accesses that can be executed again count: a jump back from a slow path is no loop."""
    marked = frozenset({0x00, 0x30, 0x60, 0x80, 0x90})
    assert spilled_in_loops(SASS.splitlines(), {"_Z1aPf": marked}) == {"_Z1aPf": (0, 8)}
    assert spilled_in_loops(SASS.splitlines(), {"_Z1aPf": marked | {0x40}}) == {"_Z1aPf": (4, 8)}
    slow = SASS.replace("@!P0 BRA `(.L_x_3)", "NOP").replace("EXIT ;", "@P2 BRA `(.L_x_3) ;", 1)
    assert spilled_in_loops(slow.splitlines(), {"_Z1aPf": marked}) == {"_Z1aPf": (4, 28)}


def test_the_page_lists_every_expert_and_claims_no_speed() -> None:
    """Make it so: python -m tools.expert_sass."""
    table = PAGE.read_text(encoding="utf-8").partition("## All kernels")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    rows = [row for row in rows if re.fullmatch(r"\w+/\w+", row[0])]
    assert {row[0] for row in rows} == set(experts(ROOT))
    assert {row[-1] for row in rows} == {NOT_MEASURED}
