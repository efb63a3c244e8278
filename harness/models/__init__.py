"""Models: from `provider/model` to something that answers requests.

Importing this package imports no SDK; making a model needs no API key but its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Protocol

from harness.errors import PermanentProviderError, UsageError
from harness.records import ModelSpec, Reply, Request

if TYPE_CHECKING:
    import httpx2

__all__ = ["Factory", "Model", "ModelOptions", "PermanentProviderError", "make_model"]

ENTRY_POINT_GROUP: Final = "liftbench.models"


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


Factory = Callable[[ModelSpec, ModelOptions], Model]
"""What the entry-point group `liftbench.models` holds."""

PROVIDERS: Final = {
    "anthropic": "harness.models.anthropic_model:make_anthropic",
    "openai": "harness.models.openai_model:make_openai",
    "replay": "harness.models.recording:make_replay",
}
_COMPATIBLE: Final = "harness.models.openai_model:make_compatible"


def make_model(
    spec: ModelSpec,
    *,
    max_retries: int = ModelOptions.max_retries,
    timeout_s: float = ModelOptions.timeout_s,
    http_client: httpx2.Client | None = None,
) -> Model:
    """The model that `spec` names; needs its API key, if it has one, in the environment.

    A provider is built in, installed (entry-point group `liftbench.models`), or any other word with
    a base URL, which then is an OpenAI-compatible server. Raises UsageError otherwise.
    """
    options = ModelOptions(max_retries, timeout_s, http_client)
    builtin = PROVIDERS.get(spec.provider)
    factory = _installed(spec.provider) if builtin is None else _factory(builtin)
    if factory is None and spec.base_url is not None:
        factory = _factory(_COMPATIBLE)
    if factory is None:
        raise UsageError(
            f"model {spec.name}: unknown provider {spec.provider!r}; known: {', '.join(PROVIDERS)}. "
            f"For an OpenAI-compatible server add --base-url, such as http://localhost:8080/v1"
        )
    return factory(spec, options)


def _factory(place: str) -> Factory:
    module, _, name = place.partition(":")
    factory: Any = getattr(import_module(module), name)
    return factory  # type: ignore[no-any-return]


def _installed(provider: str) -> Factory | None:
    """A third party's provider, or None. Raises UsageError when it cannot be loaded."""
    for point in entry_points(group=ENTRY_POINT_GROUP, name=provider):
        try:
            factory: Factory = point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(f"provider {provider!r} ({point.value}) cannot be loaded: {error}") from error
        return factory
    return None
