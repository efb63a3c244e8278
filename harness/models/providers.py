"""The registry of providers: from `provider/model` to a Model.

A provider's SDK is imported when a model of it is made, which needs no API key but its own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from harness.errors import UsageError
from harness.models import Model, ModelOptions
from harness.records import ModelSpec

ENTRY_POINT_GROUP: Final = "liftbench.models"
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
