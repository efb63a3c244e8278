"""The seam between liftbench and a language model.

`complete` returns a whole reply or raises; it is safe to call from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from harness.records import ModelSpec, Reply, Request

if TYPE_CHECKING:
    import httpx2


class Model(Protocol):
    """Something that answers prompts.

    Where it has them, three more properties are used: `ignored_parameters` (sampling parameters that it was
    found not to take), `price` (prices.Price, or None), and `recorded` (True: nothing is asked or paid).
    """

    @property
    def name(self) -> str:
        """`provider/model`, as the user typed it."""
        ...

    def complete(self, request: Request) -> Reply:
        """One reply to one request.

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
    """Replaces the SDK's own transport; tests answer through it."""


Factory = Callable[[ModelSpec, ModelOptions], Model]
"""What `harness.models.PROVIDERS` and the entry-point group `liftbench.models` hold."""
