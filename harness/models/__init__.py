"""Models: something that answers requests, and how its provider is called.

Importing this package imports no SDK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.records import Reply, Request

if TYPE_CHECKING:
    import httpx2


class Model(Protocol):
    """Something that answers prompts.

    Two more properties are used if they exist: `price` (prices.Price, or None), and `recorded` (True: nothing
    is asked or paid).
    """

    @property
    def name(self) -> str:
        """`provider/model`, as the user typed it."""
        ...

    def complete(self, request: Request) -> Reply:
        """A whole reply to one request; safe to call from several threads at once.

        Raises ProviderError when the provider fails after its retries, and UsageError when the
        request can never be answered (a recording that does not hold it).
        """
        ...


@dataclass(frozen=True)
class ModelOptions:
    """How a provider is called: the same for all models of a run."""

    max_retries: int = 5
    """Of one request, with the SDK's exponential backoff."""
    timeout_s: float = 1200.0
    """Longest silence: a reply of 16,000 tokens from a slow server comes in one piece after minutes."""
    http_client: httpx2.Client | None = None
    """Replaces the SDK's own transport, in tests."""
