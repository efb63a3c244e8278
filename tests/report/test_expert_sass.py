"""The table of the compiled experts."""

from __future__ import annotations

import re

from harness.records import DeviceKernel
from tools.expert_sass import NOT_MEASURED, PAGE, ROOT, experts, page


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
    text = page({"l1/a": old}, now)
    assert f"| l1/a | `f<float>` | 9 -> 7 | 4 / 4 -> 2 / 2 | 128 -> 128, 16 | {NOT_MEASURED} |\n" in text
    assert f"| l1/a | `g<8>` | new -> 5 | new -> 8 / 8 | new -> - | {NOT_MEASURED} |\n" in text
    assert f"| l1/a | `h<2>`, before `h<1>` | 99 -> 3 | none | 32 | {NOT_MEASURED} |\n" in text
    assert "Kernels that spill: l1/a: `f<int>`, `g<8>`\n" in text


def test_the_page_lists_every_expert_and_claims_no_speed() -> None:
    """Make it so: python -m tools.expert_sass."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if re.fullmatch(r"\w+/\w+", row[0])]
    assert {row[0] for row in rows} == set(experts(ROOT))
    assert {row[-1] for row in rows} == {NOT_MEASURED}
