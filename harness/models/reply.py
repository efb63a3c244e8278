"""Builds the Reply record from what a provider's SDK returned.

Owns: cleaning text and counts. Does not own: what the text means. Invariant: unknown counts are
None, and the text can be written as UTF-8.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal

from harness.records import Reply, Usage

Stop = Literal["end", "length", "refusal", "other"]


def build_reply(
    text: str, stop: Stop, *, label: str, usage: Usage, cost_usd: float | None, started: float
) -> Reply:
    """A reply that has just arrived; `started` is the `time.monotonic()` at which it was asked for.

    Latency includes the SDK's waits between retries.
    """
    return Reply(
        text=clean_text(text),
        stop=stop,
        model_label=label,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        usage=usage,
        cost_usd=cost_usd,
        latency_s=time.monotonic() - started,
    )


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD.

    JSON may hold half of a surrogate pair (a reply cut inside an emoji), which no UTF-8 file can.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def count(value: object) -> int | None:
    """A token count as an SDK hands it on, unvalidated; None unless it is a number of tokens."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
