"""OpenAI's models, and every server that speaks OpenAI's chat completions.

OPENAI_API_KEY, and whatever else the environment says of an OpenAI account, goes to provider `openai` only.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from harness.models.adaptation import Adaptation
from harness.models.endpoint import NO_KEY, Endpoint, checked_url, optional_key, required_key
from harness.models.failure import broken_reply, connection_error, server_message, status_error, timeout_error
from harness.models.openai_messages import calls_in, sent_messages, sent_tools, text_of, thinking_in
from harness.models.package import require_sdk
from harness.models.patience import long_wait_s
from harness.models.prices import Price, cost_usd, load_prices, price_of, user_prices
from harness.models.protocol import ModelOptions
from harness.models.reach import Reach
from harness.models.refused import prompt_too_long, refusal_error
from harness.models.reply import Stop, build_calls, build_reply, count, overflow_reply
from harness.models.thinking import TakenBack, fields_in
from harness.records import ModelSpec, Reply, Request, Usage

if TYPE_CHECKING:
    from openai import Omit
    from openai.types.chat import ChatCompletion
    from openai.types.chat.chat_completion import Choice

DEFAULT_URL: Final = "https://api.openai.com/v1"

_STOPS: Final[dict[str, Stop]] = {
    "stop": "end",
    # What text-generation-inference calls the same.
    "eos_token": "end",
    "stop_sequence": "end",
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool",
}


def make_openai(spec: ModelSpec, options: ModelOptions) -> OpenAIModel:
    """An OpenAI model; the key is OPENAI_API_KEY.

    It goes to another address only where the user wrote that address beside `openai/`: as the
    model's base URL, or in OPENAI_BASE_URL.
    """
    url = spec.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
    key = required_key("OPENAI_API_KEY", spec.name)
    require_sdk("openai", spec.name)
    endpoint = Endpoint(spec.name, checked_url(url, spec.name), "OPENAI_API_KEY", options, key)
    # A gateway sets its own prices.
    prices = load_prices() if endpoint.url == DEFAULT_URL else user_prices()
    return OpenAIModel(spec, endpoint, prices, ["max_completion_tokens", "max_tokens"], {})


def make_compatible(spec: ModelSpec, options: ModelOptions) -> OpenAIModel:
    """A model on any OpenAI-compatible server; LIFTBENCH_API_KEY is sent where it is set."""
    url = checked_url(spec.base_url or "", spec.name)
    key = optional_key("LIFTBENCH_API_KEY") or NO_KEY
    require_sdk("openai", spec.name)
    from openai import Omit

    endpoint = Endpoint(spec.name, url, "LIFTBENCH_API_KEY", options, key)
    # The SDK adds these to every request it makes, whatever the address.
    custom = os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()
    names = {line.partition(":")[0].strip() for line in custom if ":" in line}
    names |= {"OpenAI-Organization", "OpenAI-Project"}
    headers: dict[str, str | Omit] = {name: Omit() for name in names if name.lower() != "authorization"}
    headers["Authorization"] = f"Bearer {key}"
    return OpenAIModel(spec, endpoint, user_prices(), ["max_tokens", "max_completion_tokens"], headers)


class OpenAIModel:
    """One model behind a chat completions address."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        prices: dict[str, Price],
        limit_names: list[str],
        headers: Mapping[str, str | Omit],
    ) -> None:
        import openai

        self.name = spec.name
        self._model = spec.model
        self._endpoint = endpoint
        self._prices = prices
        self._reach = Reach(endpoint)
        self._headers = headers
        self._adaptation = Adaptation(spec.name, limit_names, ["temperature", "seed"])
        self._taken_back = TakenBack(spec.name)
        self._client = openai.OpenAI(
            api_key=endpoint.key,
            # Not None: the SDK would then read OPENAI_ADMIN_KEY.
            admin_api_key="",
            base_url=endpoint.url,
            max_retries=endpoint.options.max_retries,
            timeout=openai.Timeout(endpoint.options.timeout_s, connect=10.0),
            http_client=endpoint.options.http_client,
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
        """List price, or the user's; None where it is unknown, as for a local server."""
        return price_of(self.name, self._prices)

    def complete(self, request: Request) -> Reply:
        """One reply; see Model."""
        self._reach.check()
        started = time.monotonic()
        completion = self._ask(request)
        choice = None if completion is None else self._only_choice(completion)
        if completion is None or choice is None:
            return overflow_reply(self._model, started)
        text, refusal = text_of(choice.message.content), text_of(getattr(choice.message, "refusal", None))
        calls = build_calls(request, calls_in(choice.message))
        usage, written = _usage(completion, bool(text or calls))
        return build_reply(
            text or refusal,
            "refusal" if refusal else _STOPS.get(str(choice.finish_reason), "other"),
            label=str(completion.model or self._model),
            usage=usage,
            cost_usd=cost_usd(self.name, usage, self._prices, cache_write_tokens=written),
            started=started,
            tool_calls=calls,
            thinking=thinking_in(choice.message) if request.tools else (),
        )

    def _ask(self, request: Request) -> ChatCompletion | None:
        """What the server made of it, or None where the prompt does not fit into the model's context."""
        import httpx2
        import openai

        # Raised `from None`: the SDKs' exceptions hold the request, key included.
        while True:
            sent: dict[str, Any] = dict(self._adaptation.parameters(request.sampling))
            thought = fields_in(request.messages) & self._taken_back.names
            try:
                return self._send(request, sent, thought)
            except openai.APIStatusError as error:
                status, body = error.status_code, error.body
                if self._taken_back.learn(status, server_message(body), thought):
                    continue
                refused = refusal_error(self._endpoint, request, status, body)
                if refused is None and prompt_too_long(status, body, error.code):
                    return None
                if refused is None and self._adaptation.learn(
                    status, server_message(body), sent, error.param
                ):
                    continue
                wait_s = long_wait_s(error.response.headers)
                told = refused or status_error(self._endpoint, status, body, error.code, wait_s=wait_s)
                raise told from None
            except openai.APITimeoutError:
                raise timeout_error(self._endpoint) from None
            except openai.APIConnectionError as error:
                raise connection_error(self._endpoint, error.__cause__ or error) from None
            except (openai.OpenAIError, httpx2.HTTPError, json.JSONDecodeError) as error:
                raise broken_reply(self._endpoint, str(error) or type(error).__name__) from None

    def _send(self, request: Request, sent: dict[str, Any], thought: frozenset[str]) -> ChatCompletion:
        messages: list[Any] = sent_messages(request.messages, thought)
        tools: dict[str, Any] = {"tools": sent_tools(request.tools)} if request.tools else {}
        completion: ChatCompletion = self._client.chat.completions.create(
            model=self._model, messages=messages, extra_headers=self._headers, **tools, **sent
        )
        return completion

    def _only_choice(self, completion: ChatCompletion) -> Choice | None:
        """The choice that we asked for, or None where the prompt was too long.

        The SDK validates nothing: a web page arrives here as a string.
        """
        choices = getattr(completion, "choices", None)
        choice: Choice | None = choices[0] if isinstance(choices, list) and choices else None
        if choice is None or getattr(choice, "message", None) is None:
            # Some gateways answer 200 with an error inside.
            error = getattr(completion, "error", None)
            if error and prompt_too_long(200, error):
                return None
            said = error or completion
            what = said if isinstance(said, str | dict) else "no choices in it"
            raise broken_reply(self._endpoint, server_message(what))
        return choice


def _usage(completion: ChatCompletion, said_something: bool) -> tuple[Usage, int]:
    """Token counts, and how many input tokens were written to the cache (a part of the input)."""
    raw = completion.usage
    prompt_details = getattr(raw, "prompt_tokens_details", None)
    output_details = getattr(raw, "completion_tokens_details", None)
    output = count(getattr(raw, "completion_tokens", None))
    usage = Usage(
        # No prompt has 0 tokens and no text has 0: servers that do not count send zeros.
        input_tokens=count(getattr(raw, "prompt_tokens", None)) or None,
        cached_input_tokens=count(getattr(prompt_details, "cached_tokens", None)),
        output_tokens=None if output == 0 and said_something else output,
        reasoning_tokens=count(getattr(output_details, "reasoning_tokens", None)),
    )
    return usage, count(getattr(prompt_details, "cache_write_tokens", None)) or 0
