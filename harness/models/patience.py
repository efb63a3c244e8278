"""How long a server may make us wait before a retry.

A server that asks for hours is a failure that is told at once, not a run that hangs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx2

LONGEST_WAIT_S: Final = 120.0
"""As in OpenAI's SDK 3; Anthropic's SDK 2 sleeps for as long as it is told, up to weeks."""


def long_wait_s(headers: Mapping[str, str]) -> float | None:
    """The seconds in `retry-after`, where they are more than we wait."""
    asked = headers.get("retry-after", "")
    try:
        wait_s = float(asked)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(asked).timestamp() - time.time()
        except ValueError:
            return None
    return wait_s if wait_s > LONGEST_WAIT_S else None


def refuse_long_wait(response: httpx2.Response) -> None:
    """A hook on answers: tells the SDK, by a header that it obeys, not to retry after such a wait."""
    if long_wait_s(response.headers) is not None:
        response.headers["x-should-retry"] = "false"
