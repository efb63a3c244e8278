"""Text that a student or provider wrote, made safe to show.

The result holds no control character but newline and tab, no surrogate and no bidirectional override.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

# CSI and OSC sequences go as a whole, so that "\x1b[31mred" reads "red" and not "[31mred".
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# Trojan Source (CVE-2021-42574): these reorder what follows them on a line.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ERROR = re.compile(r"\b(?:fatal )?error\b\s*(?:C?\d+)?:|undefined reference", re.IGNORECASE)
# Plain English has about 4.2 bytes to a token, C++ and CUDA about 3; skills about kernels lie between.
BYTES_PER_TOKEN: Final = 3.6
SLUG_LIMIT: Final = 64
MESSAGE_CHARS = 4_000
LINE_CHARS = 300


def _shown(char: str) -> bool:
    if char in "\n\t":
        return True
    # Cc: controls, Cs: surrogates, Cn: unassigned, which holds U+FFFE and U+FFFF, illegal in XML.
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn") and char not in _BIDI


def clean(text: str) -> str:
    """text without escape sequences, control characters and direction overrides."""
    text = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return text if text.isascii() and text.isprintable() else "".join(filter(_shown, text))


def shorten(text: str, limit: int) -> str:
    """text, cut to limit characters with a mark where something is missing."""
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


def message_of(text: str) -> str:
    """A cleaned message of bounded length."""
    return shorten(clean(text).strip(), MESSAGE_CHARS)


def first_line(text: str) -> str:
    """The first line that is not blank, cleaned and of bounded length."""
    return next((shorten(line.strip(), LINE_CHARS) for line in clean(text).splitlines() if line.strip()), "")


def first_error(text: str) -> str:
    """The first line that reads like a compiler's or linker's error, else the first line."""
    lines = clean(text).splitlines()
    found = next((line.strip() for line in lines if _ERROR.search(line)), None)
    return first_line(text) if found is None else shorten(found, LINE_CHARS)


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is: UTF-8 bytes / 3.6, rounded up. An estimate, not any model's count."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def slug(text: str) -> str:
    """A valid skill name out of any words; `generated-skill` where nothing is left."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word[:SLUG_LIMIT]
        if len(longer) > SLUG_LIMIT:
            break
        name = longer
    return name or "generated-skill"
