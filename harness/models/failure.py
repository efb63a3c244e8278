"""What to tell the user when a provider fails.

Every message names the model, says what to do next, and holds no key.
"""

from __future__ import annotations

import json

from harness.errors import ProviderError
from harness.models.endpoint import Endpoint

_LONGEST_DETAIL = 400


class PermanentProviderError(ProviderError):
    """A failure that asking again cannot mend: no server, a bad key, no credit, no such model."""


def server_message(body: object) -> str:
    """What a server says is wrong, from the body of its answer: one line, whatever its shape.

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


def status_error(
    endpoint: Endpoint,
    status: int,
    body: object,
    code: str | None = None,
    *,
    wait_s: float | None = None,
) -> ProviderError:
    """The error for an answer with an HTTP error status, after the SDK's retries.

    `wait_s`: the server asks for so long a wait that there was no retry.
    """
    detail = _clipped(endpoint, server_message(body))
    said = f" ({status}): {detail}" if detail else f" ({status})"
    model, variable = endpoint.model, endpoint.key_variable
    if status == 401:
        return PermanentProviderError(f"{model}: the API key was refused{said}. Check {variable}")
    if status == 402 or code == "insufficient_quota" or "credit balance" in detail:
        return PermanentProviderError(f"{model}: the account has no credit left{said}. Add credit")
    if status == 403:
        return PermanentProviderError(
            f"{model}: access was refused{said}. Check that the key in {variable} may use this model"
        )
    if status == 404:
        return PermanentProviderError(
            f"{model}: no such model or address{said}. Check the model name and the address {endpoint.url}"
        )
    tried = _retried(endpoint) if wait_s is None else f"to be tried again in {wait_s:.0f} s"
    if status == 429:
        return ProviderError(f"{model}: rate limit{said}, {tried}. Wait, or lower --max-connections")
    if 400 <= status < 500 and status not in (408, 409):
        return ProviderError(f"{model}: the provider refused the request{said}. Read its reason above")
    if status < 400:
        return ProviderError(f"{model}: the reply broke off{said}. Try again later")
    return ProviderError(f"{model}: the provider failed{said}, {tried}. Try again later")


def tools_error(endpoint: Endpoint, status: int, body: object) -> ProviderError:
    """The error for a server, or a model, that cannot be given tools."""
    return PermanentProviderError(
        f"{endpoint.model}: tools were refused ({status}): {_clipped(endpoint, server_message(body))}. "
        f"Use --delivery body, which needs none, or a server that has them enabled"
    )


def context_error(endpoint: Endpoint, max_output_tokens: int, context_tokens: int) -> ProviderError:
    """The error for a limit on the reply that leaves no room for any prompt."""
    return PermanentProviderError(
        f"{endpoint.model}: replies of {max_output_tokens:,} tokens leave no room for a prompt in its "
        f"context of {context_tokens:,} tokens. Lower --max-tokens, or start the server with a longer context"
    )


def timeout_error(endpoint: Endpoint) -> ProviderError:
    """The error for a server that stayed silent too long."""
    return ProviderError(
        f"{endpoint.model}: no answer from {endpoint.url} within {endpoint.options.timeout_s:g} s, "
        f"{_retried(endpoint)}. Lower --max-tokens or --max-connections, or use a faster server"
    )


def connection_error(endpoint: Endpoint, reason: object) -> ProviderError:
    """The error for a server that cannot be reached."""
    return ProviderError(
        f"{endpoint.model}: {endpoint.url} cannot be reached ({_clipped(endpoint, str(reason))}), "
        f"{_retried(endpoint)}. Is the server running at that address, and this machine online?"
    )


def unreachable_error(endpoint: Endpoint, reason: str, advice: str) -> ProviderError:
    """The error for a server that has never answered: no later request will reach it either."""
    return PermanentProviderError(
        f"{endpoint.model}: {endpoint.url} cannot be reached ({_clipped(endpoint, reason)}). {advice}"
    )


def broken_reply(endpoint: Endpoint, what: object) -> ProviderError:
    """The error for an answer that is no reply: half a stream, a web page, another protocol."""
    return ProviderError(
        f"{endpoint.model}: {endpoint.url} answered with no usable reply: {_clipped(endpoint, str(what))}. "
        f"Try again; if it stays so, check the base URL (OpenAI-compatible ones often end in /v1)"
    )


def _retried(endpoint: Endpoint) -> str:
    retries = endpoint.options.max_retries
    return f"after {retries} {'retry' if retries == 1 else 'retries'}"


def _clipped(endpoint: Endpoint, text: str) -> str:
    # Scrubbed before it is cut: half a key at the cut would no longer be recognised.
    text = endpoint.scrub(" ".join(text.split())).rstrip(".")
    return text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + "..."
