"""Claude, through Anthropic's SDK.

Owns: the mapping between our records and the Messages API. Does not own: retries (the SDK's).
Invariant: input_tokens is the whole prompt, cached or not, as for every other provider.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from harness.models.adaptation import Adaptation
from harness.models.endpoint import Endpoint, checked_url, required_key
from harness.models.failure import (
    broken_reply,
    connection_error,
    server_message,
    status_error,
    timeout_error,
)
from harness.models.package import require_sdk
from harness.models.prices import Price, cost_usd, load_prices, user_prices
from harness.models.protocol import ModelOptions
from harness.models.reply import Stop, build_reply, count
from harness.records import ModelSpec, Reply, Request, Usage

if TYPE_CHECKING:
    from anthropic.types import Message

DEFAULT_URL: Final = "https://api.anthropic.com"

# The last API version that takes a temperature; from 2026-10-21 on, which SDK 2.0 sends, it is an error.
# Source: the SDK's migration guide.
_VERSION_WITH_TEMPERATURE = "2023-06-01"

_STOPS: Final[dict[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


def make_anthropic(spec: ModelSpec, options: ModelOptions) -> AnthropicModel:
    """A Claude model; the key is ANTHROPIC_API_KEY. A base URL names a gateway."""
    url = spec.base_url or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_URL
    key = required_key("ANTHROPIC_API_KEY", spec.name)
    require_sdk("anthropic", spec.name)
    endpoint = Endpoint(spec.name, checked_url(url, spec.name), "ANTHROPIC_API_KEY", options, key)
    # A gateway sets its own prices.
    prices = load_prices() if endpoint.url == DEFAULT_URL else user_prices()
    return AnthropicModel(spec, endpoint, prices)


class AnthropicModel:
    """One Claude model. Sampling seeds do not exist here and are reported as ignored."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint, prices: dict[str, Price]) -> None:
        import anthropic

        self.name = spec.name
        self._model = spec.model
        self._endpoint = endpoint
        self._prices = prices
        self._adaptation = Adaptation(spec.name, ["max_tokens"], ["temperature"])
        self._client = anthropic.Anthropic(
            api_key=endpoint.key,
            base_url=endpoint.url,
            max_retries=endpoint.options.max_retries,
            timeout=anthropic.Timeout(endpoint.options.timeout_s, connect=10.0),
            http_client=endpoint.options.http_client,
        )
        if endpoint.options.http_client is None:
            # Connections end with the model, not whenever the SDK's reference cycles are collected.
            weakref.finalize(self, self._client.close)

    @property
    def ignored_parameters(self) -> frozenset[str]:
        """Sampling parameters that were asked for and that this model does not take."""
        return self._adaptation.ignored

    def complete(self, request: Request) -> Reply:
        """One reply; see Model."""
        started = time.monotonic()
        message = self._ask(request)
        usage, written = _usage(message)
        return build_reply(
            "".join(block.text for block in message.content if block.type == "text"),
            _STOPS.get(message.stop_reason or "", "other"),
            label=message.model or self._model,
            usage=usage,
            cost_usd=cost_usd(self.name, usage, self._prices, cache_write_tokens=written),
            started=started,
        )

    def _ask(self, request: Request) -> Message:
        import anthropic
        import httpx2

        # Raised `from None`: the SDKs' exceptions hold the request, key included.
        while True:
            sent = self._adaptation.parameters(request.sampling)
            try:
                message = self._stream(request, sent)
            except anthropic.APIStatusError as error:
                if self._adaptation.learn(error.status_code, server_message(error.body), sent):
                    continue
                raise status_error(self._endpoint, error.status_code, error.body) from None
            except anthropic.APITimeoutError:
                raise timeout_error(self._endpoint) from None
            except anthropic.APIConnectionError as error:
                raise connection_error(self._endpoint, error.__cause__ or error) from None
            # Faults in the middle of a stream are not wrapped by the SDK.
            except (anthropic.AnthropicError, httpx2.HTTPError, json.JSONDecodeError) as error:
                raise broken_reply(self._endpoint, str(error) or type(error).__name__) from None
            if message is None or message.stop_reason is None:
                raise broken_reply(self._endpoint, "the stream ended before the message did")
            return message

    def _stream(self, request: Request, sent: dict[str, float]) -> Message | None:
        """The message, or None when the stream held none."""
        # Streamed, because the SDK refuses to wait for long replies in one piece.
        system = "\n\n".join(m.content for m in request.messages if m.role == "system")
        turns: list[Any] = [
            {"role": m.role, "content": m.content} for m in request.messages if m.role != "system"
        ]
        arguments: dict[str, Any] = {"max_tokens": sent["max_tokens"]}
        if system:
            arguments["system"] = system
        if "temperature" in sent:
            arguments["extra_body"] = {"temperature": sent["temperature"]}
            arguments["extra_headers"] = {"anthropic-version": _VERSION_WITH_TEMPERATURE}
        with self._client.messages.stream(model=self._model, messages=turns, **arguments) as stream:
            begun = False
            for event in stream:
                begun = begun or event.type == "message_start"
            # Without a first event, get_final_message fails an assertion of the SDK's.
            return stream.get_final_message() if begun else None


def _usage(message: Message) -> tuple[Usage, int]:
    """Token counts, and how many input tokens were written to the cache (a part of the input)."""
    raw = message.usage
    fresh = count(getattr(raw, "input_tokens", None))
    read = count(getattr(raw, "cache_read_input_tokens", None))
    written = count(getattr(raw, "cache_creation_input_tokens", None)) or 0
    details = getattr(raw, "output_tokens_details", None)
    usage = Usage(
        # The API's input_tokens excludes what was read from, or written to, the cache.
        input_tokens=None if fresh is None else fresh + (read or 0) + written,
        cached_input_tokens=read,
        output_tokens=count(getattr(raw, "output_tokens", None)),
        reasoning_tokens=count(getattr(details, "thinking_tokens", None)),
    )
    return usage, written
