"""Typography for HTML: real minus and multiplication signs in our own figures.

Only ever applied to text of ours, never to a student's.
"""

from __future__ import annotations

import re

_MINUS = re.compile(r"(?<![\w.])-(?=[\d$])")
_TIMES_BEFORE = re.compile(r"\bx(?= ?\d)")
_TIMES_AFTER = re.compile(r"(?<=\d)x\b")


def typeset(figure: str) -> str:
    """-3 pts -> −3 pts, x1.31 -> ×1.31, 1.31x -> 1.31×, 30 x 5 -> 30 × 5."""
    figure = _MINUS.sub("\N{MINUS SIGN}", figure)
    figure = _TIMES_BEFORE.sub("\N{MULTIPLICATION SIGN}", figure)
    return _TIMES_AFTER.sub("\N{MULTIPLICATION SIGN}", figure)
