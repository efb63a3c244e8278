"""The table of compiled kernels on a card."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from harness.records import DeviceKernel
from harness.report.kernels import all_counts, notable, short_name, spills, total

_ON_A_CARD = 6
# So that 80 columns, less the card's frame, break no figure and few names.
_NAME_COLUMNS, _CLASS_COLUMNS = 18, 13


def kernel_table(kernels: tuple[DeviceKernel, ...], everything: bool) -> list[RenderableType]:
    """The longest kernels, or with `everything` all of them with every class of instruction."""
    shown = kernels if everything else kernels[:_ON_A_CARD]
    if not shown:
        return []
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("kernel", overflow="fold", min_width=_NAME_COLUMNS)
    table.add_column("for", no_wrap=True)
    for name in ("regs", "smem B", "stack B", "spills", "instr."):
        table.add_column(name, justify="right")
    table.add_column("of which", overflow="fold", min_width=_CLASS_COLUMNS)
    for one in shown:
        classes = all_counts(one) if everything else notable(one)
        figures = [str(n) for n in (one.registers, one.shared_bytes, one.stack_bytes)]
        cells = [short_name(one.name), one.architecture, *figures, spills(one), total(one), classes]
        table.add_row(*(Text(cell) for cell in cells))
    lines: list[RenderableType] = [Text("\nkernels: as compiled; counts are of the code", style="dim"), table]
    if len(shown) < len(kernels):
        lines.append(Text(f"and {len(kernels) - len(shown)} shorter ones", style="dim"))
    return lines
