"""Models: from `provider/model` to something that answers requests.

Importing this package imports no SDK; making a model needs no API key but its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, Protocol

from harness.errors import UsageError
from harness.records import ModelSpec, Reply, Request

if TYPE_CHECKING:
    import httpx2

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
    "anthropic": "harness.models.anthropic_model:AnthropicModel",
    "openai": "harness.models.openai_model:make_openai",
    "replay": "harness.models.recording:ReplayModel",
}
_COMPATIBLE: Final = "harness.models.openai_model:make_compatible"


def make_model(spec: ModelSpec, options: ModelOptions | None = None) -> Model:
    """The model that `spec` names; needs its API key, if it has one, in the environment.

    A provider is built in, installed (entry-point group `liftbench.models`), or any other word with
    a base URL, which then is an OpenAI-compatible server. Raises UsageError otherwise.
    """
    point = _entry_point(spec)
    if point is None:
        raise UsageError(
            f"model {spec.name}: unknown provider {spec.provider!r}; known: {', '.join(PROVIDERS)}. "
            f"For an OpenAI-compatible server add --base-url, such as http://localhost:8080/v1"
        )
    try:
        factory: Factory = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"provider {spec.provider!r} ({point.value}) cannot be loaded: {error}") from error
    return factory(spec, options or ModelOptions())


def _entry_point(spec: ModelSpec) -> EntryPoint | None:
    value = PROVIDERS.get(spec.provider)
    if value is None:
        for point in entry_points(group=ENTRY_POINT_GROUP, name=spec.provider):
            return point
        value = _COMPATIBLE if spec.base_url is not None else None
    return None if value is None else EntryPoint(spec.provider, value, ENTRY_POINT_GROUP)
