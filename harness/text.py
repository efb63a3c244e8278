"""Text that a student, a provider or an agent wrote: cleaned, redacted, shortened, measured."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

# Whole CSI and OSC sequences, so that "\x1b[31mred" becomes "red" and not "[31mred".
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# Bidirectional overrides reorder the rest of a line: Trojan Source, CVE-2021-42574.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNUSUAL = re.compile(r"[^\n\t -~]")
_ERROR = re.compile(r"\b(?:fatal )?error\b\s*(?:C?\d+)?:|undefined reference", re.IGNORECASE)
# Plain English has about 4.2 bytes per token, C++ and CUDA about 3; skills about kernels lie between.
BYTES_PER_TOKEN: Final = 3.6
SLUG_LIMIT: Final = 64
REDACTED: Final = "[secret]"
# Keys of Anthropic, OpenAI, Hugging Face, GitHub, GitLab, AWS, Google, Slack, Groq, xAI, NVIDIA, npm; web
# tokens and headers; private keys; values of variables with such names. All are longer than REDACTED.
# The first part of a web token is bounded: a text may begin one at every word.
_SECRET = re.compile(
    r"\b(?:sk-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|AKIA[A-Z0-9]{12,}"
    r"|AIza[\w-]{20,}|xox[abprs]-[\w-]{10,}|gsk_\w{16,}|(?:xai|nvapi)-[\w-]{16,}|npm_\w{16,}"
    r"|eyJ[\w-]{8,1000}+\.[\w-]{8,}\.[\w-]{8,}|Bearer +[\w.~+/=-]{16,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?:\s|\\n)*[\w+/=]{16,})+"
    r"|(?P<name>\b[A-Z0-9_]*(?:API_?KEY|TOKEN|SECRET|SECRET_ACCESS_KEY|PASSWORD)=[\"']?"
    r"|\baws_secret_access_key\s*=\s*)[\w.~+/=-]{16,}"
)
_SHORTEST_CLIP: Final = 40
"""UTF-8 bytes that the sentence about what is missing may take."""
MESSAGE_CHARS = 4_000
LINE_CHARS = 300


def _shown(char: str) -> bool:
    if char in "\n\t":
        return True
    # Cc: control, Cs: surrogate, Cn: unassigned (U+FFFE and U+FFFF are illegal in XML).
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn") and char not in _BIDI


def clean(text: str) -> str:
    """text without escape sequences, surrogates, direction overrides, and controls but newline and tab."""
    if text.isascii() and text.isprintable():
        return text
    text = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _UNUSUAL.sub(lambda found: found[0] if _shown(found[0]) else "", text)


def shorten(text: str, limit: int) -> str:
    """`text`, cut to `limit` characters; `...` marks a cut."""
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


def clip(text: str, limit_bytes: int) -> str:
    """text in at most limit_bytes of UTF-8: whole, or both ends and how much is missing; empty below 40."""
    if len(text.encode()) <= limit_bytes:
        return text
    if limit_bytes < _SHORTEST_CLIP:
        return ""
    room = limit_bytes - _SHORTEST_CLIP
    head = _fitting(text, room * 2 // 3)
    tail = _fitting(text[::-1], room - len(head.encode()))[::-1]
    # Whole lines where that costs little.
    head = head[: cut + 1] if (cut := head.rfind("\n")) > len(head) // 2 else head
    tail = tail[cut:] if 0 <= (cut := tail.find("\n")) < len(tail) // 2 else tail
    return f"{head}[{len(text) - len(head) - len(tail):,} characters left out]{tail}"


def _fitting(text: str, limit_bytes: int) -> str:
    return text[:limit_bytes].encode()[:limit_bytes].decode("utf-8", "ignore")


def redact(text: str) -> str:
    """text with everything that looks like a key or token replaced by REDACTED; lines keep their numbers."""
    return _SECRET.sub(lambda m: f"{m['name'] or ''}{REDACTED}" + "\n" * m[0].count("\n"), text)


def message_of(text: str) -> str:
    """`text`, cleaned and shortened to MESSAGE_CHARS."""
    return shorten(clean(text).strip(), MESSAGE_CHARS)


def first_line(text: str, limit: int = LINE_CHARS) -> str:
    """The first line that is not blank, cleaned and shortened to `limit` characters."""
    return next((shorten(line.strip(), limit) for line in clean(text).splitlines() if line.strip()), "")


def first_error(text: str) -> str:
    """The first line that looks like an error of a compiler or linker, else the first line."""
    lines = clean(text).splitlines()
    found = next((line.strip() for line in lines if _ERROR.search(line)), None)
    return first_line(text) if found is None else shorten(found, LINE_CHARS)


def estimate_tokens(text: str) -> int:
    """Estimated number of tokens: UTF-8 bytes / 3.6, rounded up."""
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def slug(text: str) -> str:
    """A valid skill name made from any words; `generated-skill` if none is left."""
    name = "-".join(re.findall(r"[a-z0-9]+", text.lower()))
    if len(name) > SLUG_LIMIT:
        name = name[: SLUG_LIMIT + 1].rpartition("-")[0] or name[:SLUG_LIMIT]
    return name or "generated-skill"
