"""OpenAI's models, and every server that speaks OpenAI's chat completions.

Owns: the mapping between our records and chat completions. Does not own: retries (the SDK's).
Invariant: OPENAI_API_KEY, and whatever else the environment says of an OpenAI account, goes to
provider `openai` only.
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
        self._headers = headers
        self._adaptation = Adaptation(spec.name, limit_names, ["temperature", "seed"])
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

    def complete(self, request: Request) -> Reply:
        """One reply; see Model."""
        started = time.monotonic()
        completion = self._ask(request)
        choice = self._only_choice(completion)
        text, refusal = _text(choice.message.content), choice.message.refusal
        usage, written = _usage(completion, text)
        return build_reply(
            text or refusal or "",
            "refusal" if refusal else _STOPS.get(choice.finish_reason, "other"),
            label=completion.model or self._model,
            usage=usage,
            cost_usd=cost_usd(self.name, usage, self._prices, cache_write_tokens=written),
            started=started,
        )

    def _ask(self, request: Request) -> ChatCompletion:
        import httpx2
        import openai

        messages: list[Any] = [{"role": m.role, "content": m.content} for m in request.messages]
        # Raised `from None`: the SDKs' exceptions hold the request, key included.
        while True:
            sent: dict[str, Any] = dict(self._adaptation.parameters(request.sampling))
            try:
                completion: ChatCompletion = self._client.chat.completions.create(
                    model=self._model, messages=messages, extra_headers=self._headers, **sent
                )
            except openai.APIStatusError as error:
                message = server_message(error.body)
                if self._adaptation.learn(error.status_code, message, sent, error.param):
                    continue
                raise status_error(self._endpoint, error.status_code, error.body, error.code) from None
            except openai.APITimeoutError:
                raise timeout_error(self._endpoint) from None
            except openai.APIConnectionError as error:
                raise connection_error(self._endpoint, error.__cause__ or error) from None
            except (openai.OpenAIError, httpx2.HTTPError, json.JSONDecodeError) as error:
                raise broken_reply(self._endpoint, str(error) or type(error).__name__) from None
            return completion

    def _only_choice(self, completion: ChatCompletion) -> Choice:
        """The choice that we asked for. The SDK validates nothing: a web page arrives here as a string."""
        choices = getattr(completion, "choices", None)
        choice: Choice | None = choices[0] if isinstance(choices, list) and choices else None
        if choice is None or getattr(choice, "message", None) is None:
            # Some gateways answer 200 with an error inside.
            said = getattr(completion, "error", None) or completion
            what = said if isinstance(said, str | dict) else "no choices in it"
            raise broken_reply(self._endpoint, server_message(what))
        return choice


def _text(content: object) -> str:
    """The text of a message; some servers send a list of typed parts."""
    if isinstance(content, list):
        return "".join(
            str(part.get("text", ""))
            for part in content
            if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else ""


def _usage(completion: ChatCompletion, text: str) -> tuple[Usage, int]:
    """Token counts, and how many input tokens were written to the cache (a part of the input)."""
    raw = completion.usage
    prompt_details = getattr(raw, "prompt_tokens_details", None)
    output_details = getattr(raw, "completion_tokens_details", None)
    output = count(getattr(raw, "completion_tokens", None))
    usage = Usage(
        # No prompt has 0 tokens and no text has 0: servers that do not count send zeros.
        input_tokens=count(getattr(raw, "prompt_tokens", None)) or None,
        cached_input_tokens=count(getattr(prompt_details, "cached_tokens", None)),
        output_tokens=None if output == 0 and text else output,
        reasoning_tokens=count(getattr(output_details, "reasoning_tokens", None)),
    )
    return usage, count(getattr(prompt_details, "cache_write_tokens", None)) or 0
