"""Where a model is reached: its address, its key, the first contact, and what its failures mean.

A key is read only for the provider it belongs to, and is in no repr or message. Every error names the model
and says what to do next.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from harness.errors import PermanentProviderError, ProviderError, UsageError
from harness.models import ModelOptions
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
NO_KEY = "none"
"""Sent where no key is needed: most local servers want the header and ignore its value."""

_CONNECT_TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 1.0
_LONGEST_DETAIL: Final = 400

# Providers echo keys, or most of one, in their errors: "Incorrect API key provided: sk-proj-ab**yz".
_KEY_LIKE = re.compile(r"\bsk-[\w*.-]{4,}")


@dataclass(frozen=True)
class Endpoint:
    """One model at one address."""

    model: str
    """`provider/model`, as the user typed it."""
    url: str
    key_variable: str
    """The environment variable that holds, or would hold, the key."""
    options: ModelOptions
    key: str = field(repr=False)

    def clipped(self, text: str) -> str:
        """One line of at most 400 characters, without the key or anything that looks like one."""
        text = " ".join(text.split())
        # Before it is cut: half a key at the cut would no longer be recognized.
        if self.key != NO_KEY:
            text = text.replace(self.key, "[key]")
        text = _KEY_LIKE.sub("[key]", text).rstrip(".")
        return text if len(text) <= _LONGEST_DETAIL else text[:_LONGEST_DETAIL] + "..."


def required_key(variable: str, model: str) -> str:
    """The key in an environment variable. Raises UsageError that names the variable."""
    key = optional_key(variable)
    if key is None:
        raise UsageError(f"model {model} needs an API key: set the environment variable {variable}")
    return key


def optional_key(variable: str) -> str | None:
    """The key in an environment variable, or None when it is unset or empty."""
    key = os.environ.get(variable, "").strip()
    # An HTTP library would quote the header, and so the key, in its error.
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{variable} holds characters that no API key has: copy the key again")
    return key or None


def checked_url(url: str, model: str) -> str:
    """A usable base URL, without a trailing slash. Raises UsageError that says what is wrong with it."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UsageError(f"model {model}: the base URL cannot be read: {error}") from error
    if parts.username is not None or parts.password is not None:
        # It would be written to run.json.
        raise UsageError(f"model {model}: the base URL holds a password; put the key in LIFTBENCH_API_KEY")
    if parts.query or parts.fragment:
        raise UsageError(f"model {model}: the base URL may have no ? or # part")
    if parts.scheme not in ("http", "https") or not has_host:
        raise UsageError(f"model {model}: base URL {url!r} is not of the form http://localhost:8080/v1")
    return url.rstrip("/")


class FirstContact:
    """Connects to a server once before the first prompt; safe for threads.

    The SDKs retry a refused connection for a long time, which repairs no wrong address.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        # A transport that replaces the SDK's own connects to nothing.
        self._reached = endpoint.options.http_client is not None

    def check(self) -> None:
        """Connect, without a key or a prompt; any answer will do.

        Raises PermanentProviderError if the second attempt fails, too.
        """
        with self._lock:
            if self._reached:
                return
            fault = self._fault()
            if fault is not None:
                time.sleep(_PAUSE_S)
                fault = self._fault()
            if fault is not None:
                reason, advice = fault
                place, reason = self._endpoint.url, self._endpoint.clipped(reason)
                raise PermanentProviderError(
                    f"{self._endpoint.model}: {place} cannot be reached ({reason}). {advice}"
                )
            self._reached = True

    def _fault(self) -> tuple[str, str] | None:
        """Why there is no connection, and what to do about it; None where there is one."""
        try:
            httpx2.head(self._endpoint.url, timeout=_CONNECT_TIMEOUT_S)
        except httpx2.ConnectTimeout:
            return f"no connection within {_CONNECT_TIMEOUT_S:g} s", "Check the address, firewall and proxy"
        except (httpx2.ProxyError, httpx2.ConnectError) as error:
            if str(error).startswith("[Errno -"):  # getaddrinfo's codes are negative
                return str(error), "Check the host's name, and that this machine is online"
            return str(error), "Is the server running at that address? Check http or https, and the proxy"
        except httpx2.HTTPError:
            return None  # it accepted the connection, and may not support HEAD
        return None


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


def sdk_error(endpoint: Endpoint, sdk: Any, error: Exception, *, tools: bool) -> ProviderError:
    """The error for one that an SDK raised after its retries; both SDKs name their classes alike."""
    if isinstance(error, sdk.APIStatusError):
        wait_s, code = long_wait_s(error.response.headers), getattr(error, "code", None)
        return status_error(endpoint, error.status_code, error.body, code, wait_s=wait_s, tools=tools)
    if isinstance(error, sdk.APITimeoutError):
        return ProviderError(
            f"{endpoint.model}: no answer from {endpoint.url} within {endpoint.options.timeout_s:g} s, "
            f"{_retried(endpoint)}. Lower --max-tokens or --max-connections, or use a faster server"
        )
    if isinstance(error, sdk.APIConnectionError):
        reason = endpoint.clipped(str(error.__cause__ or error))
        return ProviderError(
            f"{endpoint.model}: {endpoint.url} cannot be reached ({reason}), {_retried(endpoint)}. "
            f"Is the server running at that address, and this machine online?"
        )
    return broken_reply(endpoint, str(error) or type(error).__name__)


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
    try:
        wait_s = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return wait_s if wait_s > LONGEST_WAIT_S else None


def refuse_long_wait(response: httpx2.Response) -> None:
    """A response hook: tells the SDK, by a header that it obeys, not to wait so long for a retry."""
    if long_wait_s(response.headers) is not None:
        response.headers["x-should-retry"] = "false"
