"""What a server means when it refuses a request: the prompt is too long, or it knows no tools.

A rate limit, a bad key or a missing model is never taken for either.
"""

from __future__ import annotations

import re
from typing import Final

from harness.errors import ProviderError
from harness.models.endpoint import Endpoint
from harness.models.failure import context_error, server_message, tools_error
from harness.records import Request

# 200: inside a stream, or (llama.cpp of 2025) in the body. 500: llama.cpp, before it said 400.
_STATUSES: Final = (200, 400, 413, 422, 500)

_TOO_LONG_CODES: Final = ("context_length_exceeded", "exceed_context_size_error", "request_too_large")

_TOO_LONG: Final = re.compile(
    r"prompt (?:is )?too long"  # Anthropic; Ollama
    r"|exceed\w{0,20}\b[^.]{0,60}\bcontext"  # llama.cpp, llama-cpp-python, SGLang, Anthropic with max_tokens
    r"|maximum context length|context length (?:is|of) only"  # OpenAI, vLLM, Mistral; LM Studio
    r"|longer than the model'?s? (?:maximum )?context"  # SGLang
    r"|too long to fit into the model"  # vLLM
    r"|\bn_ctx\b"  # llama.cpp
    r"|`?inputs`?(?: tokens \+ `?max_new_tokens`?)? must (?:be <=|have less than)"  # TGI
    r"|input token count .{0,40}exceeds",  # Gemini
    re.I,
)

# Where the prompt and the reply's limit share the context, servers name both, and its size in these words.
_REPLY: Final = re.compile(r"completion|output tokens|max_(?:new_|completion_)?tokens", re.I)
_CONTEXT: Final = re.compile(
    r"context length (?:is|of)(?: only)? (\d{1,12})|\d > (\d{1,12}), decrease|"
    r"max_new_tokens`? must be <= (\d{1,12})",
    re.I,
)

_TOOL_WORDS: Final = re.compile(r"\btools?\b|\btool_(?:choice|calls?)\b|function.call", re.I)
_NOT_HERE: Final = re.compile(
    r"unsupported|not support|support tool|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|"
    r"not accept|extra (?:inputs|fields)|requires?\b|not enabled",
    re.I,
)


def prompt_too_long(status: int, body: object, code: object = None) -> bool:
    """Whether the prompt does not fit into the model's context."""
    if status not in _STATUSES:
        return False
    inner = body.get("error", body) if isinstance(body, dict) else None
    kind = inner.get("type") if isinstance(inner, dict) else None
    if code in _TOO_LONG_CODES or kind in _TOO_LONG_CODES:
        return True
    return bool(_TOO_LONG.search(server_message(body)))


def refusal_error(endpoint: Endpoint, request: Request, status: int, body: object) -> ProviderError | None:
    """The error for a server that takes no prompt at all, or no tools; None for any other refusal."""
    message = server_message(body)
    limit, context = request.sampling.max_output_tokens, _CONTEXT.search(message)
    if status in _STATUSES and context is not None and _REPLY.search(message):
        size = int(next(number for number in context.groups() if number))
        if limit >= size:
            return context_error(endpoint, limit, size)
    # 404: OpenRouter, where no provider of the model takes tools. 500, 501: llama.cpp.
    refused = status in (400, 404, 422, 500, 501) and _TOOL_WORDS.search(message)
    if request.tools and refused and _NOT_HERE.search(message):
        return tools_error(endpoint, status, body)
    return None
