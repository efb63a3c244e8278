"""Models behind an SDK: address, key, first contact, and the errors of a server.

A key is read only for the provider it belongs to, and is in no repr or message. Every error names the model
and says what to do next.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import httpx2

from harness.errors import PermanentProviderError, ProviderError, UsageError
from harness.models import ModelOptions
from harness.models.messages import Answer, build_reply
from harness.models.prices import find_price
from harness.records import ModelSpec, Reply, Request
from harness.text import shorten

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

# By HTTP status: what happened, and what to do. Asking again repairs none of them.
_PERMANENT: Final = {
    401: ("the API key was refused", "Check {variable}"),
    402: ("the account has no credit left", "Add credit"),
    403: ("access was refused", "Check that the key in {variable} may use this model"),
    404: ("no such model or address", "Check the model name and the address {url}"),
}

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
        return shorten(_KEY_LIKE.sub("[key]", text).rstrip("."), _LONGEST_DETAIL)


def vendor_endpoint(spec: ModelSpec, options: ModelOptions, vendor: str, default_url: str) -> Endpoint:
    """The endpoint of ANTHROPIC or OPENAI, with <vendor>_API_KEY. Raises UsageError where the key is missing.

    The key goes to another address only where the user wrote that address beside the provider: as the model's
    base URL, or in <vendor>_BASE_URL.
    """
    url = spec.base_url or os.environ.get(f"{vendor}_BASE_URL") or default_url
    variable = f"{vendor}_API_KEY"
    key = optional_key(variable)
    if key is None:
        raise UsageError(f"model {spec.name} needs an API key: set the environment variable {variable}")
    return Endpoint(spec.name, checked_url(url, spec.name), variable, options, key)


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


class SdkModel(ABC):
    """A model that is asked through the SDK of Anthropic or OpenAI, which repeats failed requests."""

    sdk: ClassVar[Any]
    """The module; both SDKs name their classes alike."""
    sdk_errors: ClassVar[type[Exception]]
    default_url: ClassVar[str]
    """Where list prices hold; a gateway sets its own."""

    def __init__(
        self, spec: ModelSpec, endpoint: Endpoint, make_client: Callable[..., Any], **more: str
    ) -> None:
        """`more`: further arguments of `make_client`."""
        self.name = spec.name
        self.price = find_price(spec.name, listed=endpoint.url == self.default_url)
        """List price, or the user's; None where it is unknown, as for a gateway or local server."""
        self._model = spec.model
        self._endpoint = endpoint
        options = endpoint.options
        self._client = make_client(
            api_key=endpoint.key,
            base_url=endpoint.url,
            max_retries=options.max_retries,
            timeout=self.sdk.Timeout(options.timeout_s, connect=_CONNECT_TIMEOUT_S),
            http_client=options.http_client
            or self.sdk.DefaultHttpxClient(event_hooks={"response": [refuse_long_wait]}),
            **more,
        )
        self._lock = threading.Lock()
        # A transport that replaces the SDK's own connects to nothing.
        self._reached = options.http_client is not None
        if not self._reached:
            # Connections end with the model, not whenever the SDK's reference cycles are collected.
            weakref.finalize(self, self._client.close)

    @abstractmethod
    def _ask(self, request: Request) -> Answer:
        """The provider's answer. May raise the SDK's, HTTP and JSON errors."""

    def complete(self, request: Request) -> Reply:
        """One reply; see Model."""
        self._connect()
        started = time.monotonic()
        # Raised `from None`: the SDK's exceptions hold the request, key included.
        try:
            answer = self._ask(request)
        # The SDKs wrap no fault in the middle of a stream.
        except (self.sdk_errors, httpx2.HTTPError, json.JSONDecodeError) as error:
            too_long = isinstance(error, self.sdk.APIStatusError) and prompt_too_long(
                self._endpoint, request, error.status_code, error.body, getattr(error, "code", None)
            )
            if not too_long:
                raise sdk_error(self._endpoint, self.sdk, error, tools=bool(request.tools)) from None
            answer = Answer("", "overflow", self._model)
        return build_reply(request, answer, self.price, started)

    def _connect(self) -> None:
        """Connect once before the first prompt; the SDKs would retry a wrong address for a long time.

        Raises PermanentProviderError if the second attempt fails, too.
        """
        with self._lock:
            fault = None if self._reached else _connection_fault(self._endpoint.url)
            if fault is not None:
                time.sleep(_PAUSE_S)
                fault = _connection_fault(self._endpoint.url)
            if fault is not None:
                raise PermanentProviderError(
                    f"{self.name}: {self._endpoint.url} cannot be reached ({self._endpoint.clipped(fault)}). "
                    f"Is the server running at that address? Check the name, http or https, and the proxy"
                )
            self._reached = True


def _connection_fault(url: str) -> str | None:
    """Why there is no connection, asked without a key or a prompt; None where there is one."""
    try:
        httpx2.head(url, timeout=_CONNECT_TIMEOUT_S)
    except httpx2.ConnectTimeout:
        return f"no connection within {_CONNECT_TIMEOUT_S:g} s"
    except (httpx2.ProxyError, httpx2.ConnectError) as error:
        return str(error)
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


def sdk_error(endpoint: Endpoint, sdk: Any, error: Exception, *, tools: bool) -> ProviderError:
    """The error for one that an SDK raised after its retries. `tools`: the request had tools."""
    if isinstance(error, sdk.APIStatusError):
        return _status_error(endpoint, error, tools=tools)
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


def _status_error(endpoint: Endpoint, error: Any, *, tools: bool) -> ProviderError:
    """The error for an answer with an HTTP error status (an APIStatusError)."""
    status, model = error.status_code, endpoint.model
    detail = endpoint.clipped(server_message(error.body))
    reason = f" ({status}): {detail}" if detail else f" ({status})"
    if getattr(error, "code", None) == "insufficient_quota" or "credit balance" in detail:
        status = 402
    if status in _PERMANENT:
        what, advice = _PERMANENT[status]
        advice = advice.format(variable=endpoint.key_variable, url=endpoint.url)
        return PermanentProviderError(f"{model}: {what}{reason}. {advice}")
    wait_s = long_wait_s(error.response.headers)
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
    """The wait that `retry-after` gives, in seconds or as a date, if it is more than LONGEST_WAIT_S."""
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
