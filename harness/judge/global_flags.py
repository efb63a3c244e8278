"""torch's global settings, as a worker claims them.

Whatever a worker sends, this gives short texts; a setting that is missing afterwards has changed.
"""

from __future__ import annotations

_MOST = 32
_LENGTH = 48


def claimed(message: object) -> dict[str, str]:
    """Settings as text, by name; what is no short name with a plain value is left out."""
    if not isinstance(message, dict):
        return {}
    return {
        name[:_LENGTH]: str(value)[:_LENGTH]
        for name, value in list(message.items())[:_MOST]
        if isinstance(name, str) and isinstance(value, (str, bool, int, float))
    }


def changed(before: dict[str, str], after: dict[str, str]) -> list[tuple[str, str, str]]:
    """(name, before, after) of what was there before and is not the same now."""
    return [(name, was, after.get(name, "?")) for name, was in before.items() if after.get(name) != was]
