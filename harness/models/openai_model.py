"""OpenAI's models, and every server that speaks OpenAI's chat completions.

OPENAI_API_KEY, and whatever else the environment says of an OpenAI account, goes to provider `openai` only.
What a server left out, or sent as another type, is used as far as it means something and is never an error.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

import openai
from openai import Omit

from harness.models import ModelOptions
from harness.models.endpoint import (
    NO_KEY,
    Endpoint,
    SdkModel,
    broken_reply,
    checked_url,
    optional_key,
    prompt_too_long,
    server_message,
    vendor_endpoint,
)
from harness.models.messages import INVALID, Answer, Stop, arguments_object, count, joined, thinking_part
from harness.records import Message, ModelSpec, Request, Sampling, Thinking, ToolCall, Usage

_logger = logging.getLogger(__name__)

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
    """An OpenAI model; the key is OPENAI_API_KEY. A base URL names a gateway."""
    endpoint = vendor_endpoint(spec, options, "OPENAI", OpenAIModel.default_url)
    return OpenAIModel(spec, endpoint, "max_completion_tokens", {})


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
    return OpenAIModel(spec, endpoint, "max_tokens", headers)


class OpenAIModel(SdkModel):
    """One model behind a chat completions address."""

    sdk: ClassVar = openai
    sdk_errors = openai.OpenAIError
    default_url = "https://api.openai.com/v1"

    def __init__(
        self, spec: ModelSpec, endpoint: Endpoint, limit_name: str, headers: Mapping[str, str | Omit]
    ) -> None:
        """`limit_name`: of the limit on output tokens."""
        # Without the second key the SDK would read OPENAI_ADMIN_KEY.
        super().__init__(spec, endpoint, openai.OpenAI, admin_api_key="")
        self._limit_name = limit_name
        self._headers = headers
        self._unsupported: frozenset[str] = frozenset()
        """Sampling parameters that the model was found not to take."""

    def _ask(self, request: Request) -> Answer:
        completion = self._send(request)
        choices = _part(completion, "choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = _part(choice, "message")
        if not isinstance(message, dict):
            # Some gateways answer 200 with an error inside.
            error = _part(completion, "error")
            if error and prompt_too_long(self._endpoint, request, 200, error):
                return Answer("", "overflow", self._model)
            raise broken_reply(self._endpoint, server_message(error or completion))
        text, refusal = text_of(message.get("content")), text_of(message.get("refusal"))
        calls = list(calls_in(message))
        usage, written = _usage(_part(completion, "usage"), bool(text or calls))
        return Answer(
            text or refusal,
            "refusal" if refusal else _STOPS.get(str(_part(choice, "finish_reason")), "other"),
            str(_part(completion, "model") or self._model),
            usage,
            written,
            calls,
            thinking_in(message),
        )

    def _send(self, request: Request) -> object:
        """The server's JSON, or its text if that is none; sampling parameters it does not take are left out.

        The SDK's own types are not used: it validates nothing.
        """
        messages: list[Any] = sent_messages(request.messages)
        tools = [{"type": "function", "function": tool.model_dump(mode="json")} for tool in request.tools]
        offered = {"tools": tools} if tools else {}
        while True:
            sampling = self._sampling(request.sampling)
            try:
                raw = self._client.chat.completions.with_raw_response.create(
                    model=self._model, messages=messages, extra_headers=self._headers, **offered, **sampling
                )
            except openai.APIStatusError as error:
                if error.code not in _NOT_SUPPORTED or error.param not in sampling.keys() & _OPTIONAL:
                    raise
                self._drop(str(error.param))
                continue
            try:
                found: object = raw.http_response.json()
            except ValueError:
                found = raw.http_response.text
            return found

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


def _usage(usage: object, said_something: bool) -> tuple[Usage, int]:
    """Token counts, and how many input tokens were written to the cache (a part of the input)."""
    prompt_details = _part(usage, "prompt_tokens_details")
    output = count(_part(usage, "completion_tokens"))
    counts = Usage(
        # No prompt has 0 tokens and no text has 0: servers that do not count send zeros.
        input_tokens=count(_part(usage, "prompt_tokens")) or None,
        cached_input_tokens=count(_part(prompt_details, "cached_tokens")),
        output_tokens=None if output == 0 and said_something else output,
        reasoning_tokens=count(_part(_part(usage, "completion_tokens_details"), "reasoning_tokens")),
    )
    return counts, count(_part(prompt_details, "cache_write_tokens")) or 0


def sent_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as the API takes them, with what the model thought."""
    return [_sent(message) | _thought(message) for message in joined(messages)]


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
    """A field of a JSON object; None where there is none, or no object."""
    return whole.get(name) if isinstance(whole, dict) else None
