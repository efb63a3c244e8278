"""Claude, through Anthropic's SDK.

Input_tokens is the whole prompt, cached or not, as for every other provider.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from harness.models.adaptation import Adaptation
from harness.models.anthropic_messages import Incoming, sent_messages, sent_tools, system_text
from harness.models.endpoint import Endpoint, checked_url, required_key
from harness.models.failure import broken_reply, connection_error, server_message, status_error, timeout_error
from harness.models.package import require_sdk
from harness.models.patience import long_wait_s, refuse_long_wait
from harness.models.prices import Price, cost_usd, load_prices, price_of, user_prices
from harness.models.protocol import ModelOptions
from harness.models.reach import Reach
from harness.models.refused import prompt_too_long, refusal_error
from harness.models.reply import Stop, build_calls, build_reply, count, overflow_reply
from harness.records import ModelSpec, Reply, Request, Usage

if TYPE_CHECKING:
    from anthropic import Stream
    from anthropic.types import RawMessageStreamEvent

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
    "tool_use": "tool",
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
        self._reach = Reach(endpoint)
        self._adaptation = Adaptation(spec.name, ["max_tokens"], ["temperature"])
        self._client = anthropic.Anthropic(
            api_key=endpoint.key,
            base_url=endpoint.url,
            max_retries=endpoint.options.max_retries,
            timeout=anthropic.Timeout(endpoint.options.timeout_s, connect=10.0),
            http_client=endpoint.options.http_client
            or anthropic.DefaultHttpxClient(event_hooks={"response": [refuse_long_wait]}),
        )
        if endpoint.options.http_client is None:
            # Connections end with the model, not whenever the SDK's reference cycles are collected.
            weakref.finalize(self, self._client.close)

    @property
    def ignored_parameters(self) -> frozenset[str]:
        """Sampling parameters that were asked for and that this model does not take."""
        return self._adaptation.ignored

    @property
    def price(self) -> Price | None:
        """List price, or the user's; None where it is unknown, as for a gateway."""
        return price_of(self.name, self._prices)

    def complete(self, request: Request) -> Reply:
        """One reply; see Model."""
        self._reach.check()
        started = time.monotonic()
        message = self._ask(request)
        if message is None:
            return overflow_reply(self._model, started)
        usage, written = _usage(message.counts)
        return build_reply(
            message.text,
            _STOPS.get(str(message.stop_reason), "other"),
            label=str(message.model or self._model),
            usage=usage,
            cost_usd=cost_usd(self.name, usage, self._prices, cache_write_tokens=written),
            started=started,
            tool_calls=build_calls(request, message.calls),
            thinking=message.thinking if request.tools else (),
        )

    def _ask(self, request: Request) -> Incoming | None:
        """The whole message, or None where the prompt does not fit into the model's context."""
        import anthropic
        import httpx2

        # Raised `from None`: the SDKs' exceptions hold the request, key included.
        while True:
            sent = self._adaptation.parameters(request.sampling)
            try:
                message = self._stream(request, sent)
            except anthropic.APIStatusError as error:
                status, body = error.status_code, error.body
                refused = refusal_error(self._endpoint, request, status, body)
                if refused is None and prompt_too_long(status, body):
                    return None
                if refused is None and self._adaptation.learn(status, server_message(body), sent):
                    continue
                wait_s = long_wait_s(error.response.headers)
                raise (refused or status_error(self._endpoint, status, body, wait_s=wait_s)) from None
            except anthropic.APITimeoutError:
                raise timeout_error(self._endpoint) from None
            except anthropic.APIConnectionError as error:
                raise connection_error(self._endpoint, error.__cause__ or error) from None
            # Faults in the middle of a stream are not wrapped by the SDK.
            except (anthropic.AnthropicError, httpx2.HTTPError, json.JSONDecodeError) as error:
                raise broken_reply(self._endpoint, str(error) or type(error).__name__) from None
            if message.stop_reason is None:
                raise broken_reply(self._endpoint, "the stream ended before the message did")
            return message

    def _stream(self, request: Request, sent: dict[str, float]) -> Incoming:
        # Streamed, because the SDK refuses to wait for long replies in one piece.
        arguments: dict[str, Any] = {"max_tokens": sent["max_tokens"]}
        system = system_text(request.messages)
        if system:
            arguments["system"] = system
        if request.tools:
            arguments["tools"] = sent_tools(request.tools)
        if "temperature" in sent:
            arguments["extra_body"] = {"temperature": sent["temperature"]}
            arguments["extra_headers"] = {"anthropic-version": _VERSION_WITH_TEMPERATURE}
        turns: list[Any] = sent_messages(request.messages)
        events: Stream[RawMessageStreamEvent] = self._client.messages.create(
            model=self._model, messages=turns, stream=True, **arguments
        )
        message = Incoming()
        with events:
            for event in events:
                message.add(event)
        return message


def _usage(counts: dict[str, object]) -> tuple[Usage, int]:
    """Token counts, and how many input tokens were written to the cache (a part of the input)."""
    fresh = count(counts.get("input_tokens"))
    read = count(counts.get("cache_read_input_tokens"))
    written = count(counts.get("cache_creation_input_tokens")) or 0
    usage = Usage(
        # The API's input_tokens excludes what was read from, or written to, the cache.
        input_tokens=None if fresh is None else fresh + (read or 0) + written,
        cached_input_tokens=read,
        output_tokens=count(counts.get("output_tokens")),
        reasoning_tokens=count(getattr(counts.get("output_tokens_details"), "thinking_tokens", None)),
    )
    return usage, written
