"""Prints what a failed build says, as a compiler would.

Text of a student's is cleaned and never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from harness.records import Diagnostic
from harness.text import clean

CARD_LIMIT = 4


def diagnostic_lines(diagnostics: Sequence[Diagnostic], limit: int | None = CARD_LIMIT) -> list[Text]:
    """Kind, place and message, the source line below; `limit` None shows all."""
    lines: list[Text] = []
    for one in diagnostics[:limit]:
        place = ":".join(str(part) for part in (one.file, one.line, one.column) if part is not None)
        head = Text.assemble((one.kind, "bold red"), "  ")
        if place:
            head.append(f"{clean(place)}: ", "bold")
        head.append(clean(one.message).replace("\n", " "))
        lines.append(head)
        if one.source is not None:
            lines.append(Text(f"    {clean(one.source).strip()}"))
        if one.advice is not None:
            lines.append(Text(f"    help: {clean(one.advice)}", style="cyan"))
    more = len(diagnostics) - len(diagnostics[:limit])
    if more:
        lines.append(Text(f"and {more} more: `liftbench show` and the build log have them", style="dim"))
    return lines
