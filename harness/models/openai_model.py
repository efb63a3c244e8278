"""OpenAI's models, and every server that speaks OpenAI's chat completions.

OPENAI_API_KEY, and whatever else the environment says of an OpenAI account, goes to provider `openai` only.
What a server left out, or sent as another type, is used as far as it means something and is never an error.
"""

from __future__ import annotations

import json
import logging
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import httpx2
import openai
from openai import Omit
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from harness.models import ModelOptions
from harness.models.endpoint import (
    NO_KEY,
    Endpoint,
    FirstContact,
    broken_reply,
    checked_url,
    optional_key,
    prompt_too_long,
    required_key,
    sdk_error,
    server_message,
)
from harness.models.messages import (
    INVALID,
    Stop,
    arguments_object,
    build_calls,
    build_reply,
    count,
    joined,
    overflow_reply,
    thinking_part,
)
from harness.models.prices import Price, cost_usd, find_price
from harness.records import Message, ModelSpec, Reply, Request, Sampling, Thinking, Tool, ToolCall, Usage

_logger = logging.getLogger(__name__)

DEFAULT_URL: Final = "https://api.openai.com/v1"

THINKING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""DeepSeek, SGLang, llama.cpp and older vLLM; newer vLLM and Ollama; OpenRouter (with signatures)."""

_NOT_SUPPORTED: Final = ("unsupported_parameter", "unsupported_value")
"""Codes with which OpenAI refuses a sampling parameter that a model does not take."""

_OPTIONAL: Final = {"temperature", "seed"}

_STOPS: Final[dict[str, Stop]] = {
    "stop": "end",
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
    endpoint = Endpoint(spec.name, checked_url(url, spec.name), "OPENAI_API_KEY", options, key)
    # A gateway sets its own prices.
    price = find_price(spec.name, listed=endpoint.url == DEFAULT_URL)
    return OpenAIModel(spec, endpoint, price, "max_completion_tokens", {})


def make_compatible(spec: ModelSpec, options: ModelOptions) -> OpenAIModel:
    """A model on any OpenAI-compatible server; LIFTBENCH_API_KEY is sent where it is set."""
    url = checked_url(spec.base_url or "", spec.name)
    key = optional_key("LIFTBENCH_API_KEY") or NO_KEY
    endpoint = Endpoint(spec.name, url, "LIFTBENCH_API_KEY", options, key)
    # The SDK adds these to every request it makes, whatever the address.
    custom = os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()
    names = {line.partition(":")[0].strip() for line in custom if ":" in line}
    names |= {"OpenAI-Organization", "OpenAI-Project"}
    headers: dict[str, str | Omit] = {name: Omit() for name in names if name.lower() != "authorization"}
    headers["Authorization"] = f"Bearer {key}"
    return OpenAIModel(spec, endpoint, find_price(spec.name, listed=False), "max_tokens", headers)


class OpenAIModel:
    """One model behind a chat completions address."""

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        price: Price | None,
        limit_name: str,
        headers: Mapping[str, str | Omit],
    ) -> None:
        """`limit_name`: of the limit on output tokens."""
        self.name = spec.name
        self._model = spec.model
        self._endpoint = endpoint
        self.price = price
        """List price, or the user's; None where it is unknown, as for a local server."""
        self._first_contact = FirstContact(endpoint)
        self._limit_name = limit_name
        self._headers = headers
        self._unsupported: frozenset[str] = frozenset()
        """Sampling parameters that the model was found not to take."""
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

    def complete(self, request: Request) -> Reply:
        """One reply; see Model."""
        self._first_contact.check()
        started = time.monotonic()
        completion = self._ask(request)
        choice = None if completion is None else self._only_choice(request, completion)
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
            cost_usd=cost_usd(self.price, usage, cache_write_tokens=written),
            started=started,
            tool_calls=calls,
            thinking=thinking_in(choice.message) if request.tools else (),
        )

    def _ask(self, request: Request) -> ChatCompletion | None:
        """The server's answer, or None where the prompt does not fit into the model's context."""
        # Raised `from None`: the SDK's exceptions hold the request, key included.
        while True:
            sampling = self._sampling(request.sampling)
            try:
                return self._send(request, sampling)
            except openai.APIStatusError as error:
                if prompt_too_long(self._endpoint, request, error.status_code, error.body, error.code):
                    return None
                if error.code not in _NOT_SUPPORTED or error.param not in sampling.keys() & _OPTIONAL:
                    raise sdk_error(self._endpoint, openai, error, tools=bool(request.tools)) from None
                self._drop(str(error.param))
            except (openai.OpenAIError, httpx2.HTTPError, json.JSONDecodeError) as error:
                raise sdk_error(self._endpoint, openai, error, tools=bool(request.tools)) from None

    def _sampling(self, sampling: Sampling) -> dict[str, Any]:
        """The limit on output tokens, and what was asked for and is supported."""
        wanted = {"temperature": sampling.temperature, "seed": sampling.seed}
        taken = {n: v for n, v in wanted.items() if v is not None and n not in self._unsupported}
        return {self._limit_name: sampling.max_output_tokens, **taken}

    def _drop(self, name: str) -> None:
        """Send a sampling parameter no more. (Threads may do so at once: sets only grow.)"""
        if name not in self._unsupported:
            self._unsupported |= {name}
            _logger.warning("%s does not take %s: its default is used", self.name, name)

    def _send(self, request: Request, sampling: dict[str, Any]) -> ChatCompletion:
        messages: list[Any] = sent_messages(request.messages)
        tools: dict[str, Any] = {"tools": sent_tools(request.tools)} if request.tools else {}
        completion: ChatCompletion = self._client.chat.completions.create(
            model=self._model, messages=messages, extra_headers=self._headers, **tools, **sampling
        )
        return completion

    def _only_choice(self, request: Request, completion: ChatCompletion) -> Choice | None:
        """The choice that we asked for, or None where the prompt was too long.

        The SDK validates nothing: a web page arrives here as a string.
        """
        choices = getattr(completion, "choices", None)
        choice: Choice | None = choices[0] if isinstance(choices, list) and choices else None
        if getattr(choice, "message", None) is not None:
            return choice
        # Some gateways answer 200 with an error inside.
        error = getattr(completion, "error", None)
        if error and prompt_too_long(self._endpoint, request, 200, error):
            return None
        said = error or completion
        what = said if isinstance(said, str | dict) else "no choices in it"
        raise broken_reply(self._endpoint, server_message(what))


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


def sent_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as the API takes them, with what the model thought."""
    return [_sent(message) | _thought(message) for message in joined(messages)]


def sent_tools(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tools as the API takes them."""
    return [{"type": "function", "function": tool.model_dump(mode="json")} for tool in tools]


def _sent(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _arguments(c)}}
        for c in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content or None, "tool_calls": calls}


def _thought(message: Message) -> dict[str, Any]:
    """Under the names that the server itself gave it."""
    fields = (item for part in message.thinking for item in part.block.items())
    return {name: value for name, value in fields if name in THINKING_FIELDS}


def thinking_in(message: object) -> tuple[Thinking, ...]:
    """Fields beside the text that no standard knows, kept even where empty."""
    found = {name: value for name in THINKING_FIELDS if isinstance(value := _part(message, name), str | list)}
    return (thinking_part(found),) if found else ()


def _arguments(call: ToolCall) -> str:
    """As they were written, where they are an object: local servers parse them, and fail on all else."""
    found = arguments_object(call.arguments)
    return json.dumps(found) if INVALID in found else call.arguments


def text_of(content: object) -> str:
    """The text of a message; some servers send a list of typed parts."""
    if isinstance(content, list):
        return "".join(
            str(part.get("text", ""))
            for part in content
            if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else ""


def calls_in(message: object) -> Iterator[tuple[object, object, str]]:
    """Id, name and arguments of each call of a tool.

    Local servers leave out ids and types, and send arguments as an object (Ollama's own format).
    Calls that are written out in the text are the text's.
    """
    calls = _part(message, "tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = _part(call, "function")
        if function is None:
            continue
        arguments = _part(function, "arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        yield _part(call, "id"), _part(function, "name"), arguments


def _part(whole: object, name: str) -> object:
    """A field of what the SDK made of JSON: one of its models, or a dict where it knew none."""
    return whole.get(name) if isinstance(whole, dict) else getattr(whole, name, None)
