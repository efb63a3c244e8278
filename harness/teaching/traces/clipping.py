"""Shortens text so that a reader can see that it was shortened, and by how much.

What comes back is never larger than asked for, and says how many characters are missing.
"""

from __future__ import annotations

from typing import Final

from harness.teaching.traces.secrets import without_secrets

_SHORTEST: Final = 40
"""Below this there is no room for the sentence about what is missing."""


def clipped(text: str, limit_bytes: int) -> str:
    """`text` in at most `limit_bytes` of UTF-8: whole, or its two ends; empty if there is no room."""
    if len(text.encode()) <= limit_bytes:
        return text
    if limit_bytes < _SHORTEST:
        return ""
    text = without_secrets(text)  # before the cut: half a key has no beginning to know it by
    if len(text.encode()) <= limit_bytes:
        return text
    room = limit_bytes - _SHORTEST
    head = _fitting(text, room * 2 // 3)
    tail = _fitting(text[::-1], room - len(head.encode()))[::-1]
    # whole lines where that costs little
    head = head[: cut + 1] if (cut := head.rfind("\n")) > len(head) // 2 else head
    tail = tail[cut:] if 0 <= (cut := tail.find("\n")) < len(tail) // 2 else tail
    missing = len(text) - len(head) - len(tail)
    return f"{head}[{missing:,} characters left out]{tail}"


def _fitting(text: str, limit_bytes: int) -> str:
    return text[:limit_bytes].encode()[:limit_bytes].decode("utf-8", "ignore")
