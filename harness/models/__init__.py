"""Models: from `provider/model` to something that answers requests.

Importing this package loads no SDK, and making a model asks for no key but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.models.failure import PermanentProviderError
from harness.models.protocol import Factory, Model, ModelOptions
from harness.records import ModelSpec

if TYPE_CHECKING:
    import httpx2

__all__ = ["Factory", "Model", "ModelOptions", "PermanentProviderError", "make_model"]

ENTRY_POINT_GROUP: Final = "liftbench.models"


def _anthropic(spec: ModelSpec, options: ModelOptions) -> Model:
    from harness.models.anthropic_model import make_anthropic

    return make_anthropic(spec, options)


def _openai(spec: ModelSpec, options: ModelOptions) -> Model:
    from harness.models.openai_model import make_openai

    return make_openai(spec, options)


def _compatible(spec: ModelSpec, options: ModelOptions) -> Model:
    from harness.models.openai_model import make_compatible

    return make_compatible(spec, options)


def _replay(spec: ModelSpec, options: ModelOptions) -> Model:
    from harness.models.replay import ReplayModel

    return ReplayModel(spec)


PROVIDERS: Final[dict[str, Factory]] = {"anthropic": _anthropic, "openai": _openai, "replay": _replay}


def make_model(
    spec: ModelSpec,
    *,
    max_retries: int = ModelOptions.max_retries,
    timeout_s: float = ModelOptions.timeout_s,
    http_client: httpx2.Client | None = None,
) -> Model:
    """The model that `spec` names; needs its API key, if it has one, in the environment.

    A provider is built in, installed (entry-point group `liftbench.models`), or any other word with
    a base URL, which is then taken for an OpenAI-compatible server. Raises UsageError otherwise.
    """
    options = ModelOptions(max_retries, timeout_s, http_client)
    factory = PROVIDERS.get(spec.provider) or _installed(spec.provider)
    if factory is None and spec.base_url is not None:
        factory = _compatible
    if factory is None:
        raise UsageError(
            f"model {spec.name}: unknown provider {spec.provider!r}; known: {', '.join(PROVIDERS)}. "
            f"For an OpenAI-compatible server add --base-url, such as http://localhost:8080/v1"
        )
    return factory(spec, options)


def _installed(provider: str) -> Factory | None:
    """A third party's provider, or None. Raises UsageError when it cannot be loaded."""
    from importlib.metadata import entry_points

    found = {point.value: point for point in entry_points(group=ENTRY_POINT_GROUP, name=provider)}
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(f"provider {provider!r} is installed more than once: {', '.join(sorted(found))}")
    [(value, point)] = found.items()
    try:
        factory: Factory = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"provider {provider!r} ({value}) cannot be loaded: {error}") from error
    return factory
