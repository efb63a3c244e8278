"""Errors of providers: which failures last, which mean that the prompt is too long, and what to do.

Every message names the model, says what to do next, and holds no key.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import httpx2

from harness.errors import PermanentProviderError, ProviderError
from harness.models.endpoint import Endpoint
from harness.records import Request

LONGEST_WAIT_S: Final = 120.0
"""As in OpenAI's SDK 3; Anthropic's SDK 2 sleeps for as long as a server says, up to weeks."""

# OpenAI; llama.cpp; Anthropic.
_TOO_LONG_CODES: Final = ("context_length_exceeded", "exceed_context_size_error", "request_too_large")
# Anthropic has no code for it; vLLM, SGLang and Mistral use OpenAI's sentence without its code.
_TOO_LONG: Final = re.compile(r"prompt is too long|maximum context length|context window", re.I)
_CONTEXT: Final = re.compile(r"maximum context length is (\d{1,12})", re.I)
_TOO_LONG_STATUSES: Final = (200, 400, 413)
"""200: gateways may answer with an error in the body."""


def server_message(body: object) -> str:
    """The error message in the body of an answer: one line, whatever the body's shape.

    OpenAI and Anthropic nest it under `error.message`; FastAPI servers list `{loc, msg}` under `detail`.
    """
    if isinstance(body, dict):
        if "msg" in body:
            return f"{'.'.join(str(part) for part in body.get('loc', ()))}: {body['msg']}"
        for key in ("error", "message", "detail"):
            if body.get(key):
                return server_message(body[key])
        return json.dumps(body)
    if isinstance(body, list | tuple):
        return "; ".join(server_message(part) for part in body)
    return " ".join(str(body).split()) if body else ""


def prompt_too_long(
    endpoint: Endpoint, request: Request, status: int, body: object, code: object = None
) -> bool:
    """Whether the prompt does not fit into the model's context.

    Raises PermanentProviderError if no prompt would fit beside the limit on output tokens.
    """
    if status not in _TOO_LONG_STATUSES:
        return False
    message = server_message(body)
    context, limit = _CONTEXT.search(message), request.sampling.max_output_tokens
    if context is not None and limit >= int(context[1]):
        raise PermanentProviderError(
            f"{endpoint.model}: replies of {limit:,} tokens leave no room for a prompt in its context of "
            f"{int(context[1]):,} tokens. Lower --max-tokens, or start the server with a longer context"
        )
    inner = body.get("error", body) if isinstance(body, dict) else None
    kind = inner.get("type") if isinstance(inner, dict) else None
    return code in _TOO_LONG_CODES or kind in _TOO_LONG_CODES or bool(_TOO_LONG.search(message))


def status_error(
    endpoint: Endpoint,
    status: int,
    body: object,
    code: str | None = None,
    *,
    wait_s: float | None = None,
    tools: bool = False,
) -> ProviderError:
    """The error for an answer with an HTTP error status, after the SDK's retries.

    `wait_s`: the server asked for a wait so long that there was no retry. `tools`: the request had tools.
    """
    detail = endpoint.clipped(server_message(body))
    reason = f" ({status}): {detail}" if detail else f" ({status})"
    model, variable = endpoint.model, endpoint.key_variable
    if status == 401:
        return PermanentProviderError(f"{model}: the API key was refused{reason}. Check {variable}")
    if status == 402 or code == "insufficient_quota" or "credit balance" in detail:
        return PermanentProviderError(f"{model}: the account has no credit left{reason}. Add credit")
    if status == 403:
        return PermanentProviderError(
            f"{model}: access was refused{reason}. Check that the key in {variable} may use this model"
        )
    if status == 404:
        return PermanentProviderError(
            f"{model}: no such model or address{reason}. Check the model name and the address {endpoint.url}"
        )
    tried = _retried(endpoint) if wait_s is None else f"to be tried again in {wait_s:.0f} s"
    if status == 429:
        return ProviderError(f"{model}: rate limit{reason}, {tried}. Wait, or lower --max-connections")
    if 400 <= status < 500 and status not in (408, 409):
        advice = "; --delivery body needs no tools" if tools else ""
        return ProviderError(
            f"{model}: the provider refused the request{reason}. Read its reason above{advice}"
        )
    if status < 400:
        return ProviderError(f"{model}: the reply broke off{reason}. Try again later")
    return ProviderError(f"{model}: the provider failed{reason}, {tried}. Try again later")


def timeout_error(endpoint: Endpoint) -> ProviderError:
    """The error for a server that stayed silent too long."""
    return ProviderError(
        f"{endpoint.model}: no answer from {endpoint.url} within {endpoint.options.timeout_s:g} s, "
        f"{_retried(endpoint)}. Lower --max-tokens or --max-connections, or use a faster server"
    )


def connection_error(endpoint: Endpoint, reason: object) -> ProviderError:
    """The error for a connection that failed."""
    return ProviderError(
        f"{endpoint.model}: {endpoint.url} cannot be reached ({endpoint.clipped(str(reason))}), "
        f"{_retried(endpoint)}. Is the server running at that address, and this machine online?"
    )


def broken_reply(endpoint: Endpoint, what: object) -> ProviderError:
    """The error for an answer that is no reply: half a stream, a web page, another protocol."""
    return ProviderError(
        f"{endpoint.model}: {endpoint.url} sent no usable reply: {endpoint.clipped(str(what))}. "
        f"Try again; if that does not help, check the base URL (OpenAI-compatible ones often end in /v1)"
    )


def _retried(endpoint: Endpoint) -> str:
    retries = endpoint.options.max_retries
    return f"after {retries} {'retry' if retries == 1 else 'retries'}"


def long_wait_s(headers: Mapping[str, str]) -> float | None:
    """The seconds in `retry-after`, if they are more than LONGEST_WAIT_S."""
    value = headers.get("retry-after", "")
    try:
        wait_s = float(value)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return wait_s if wait_s > LONGEST_WAIT_S else None


def refuse_long_wait(response: httpx2.Response) -> None:
    """A response hook: tells the SDK, by a header that it obeys, not to wait so long for a retry."""
    if long_wait_s(response.headers) is not None:
        response.headers["x-should-retry"] = "false"
