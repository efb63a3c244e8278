"""Where a model is reached, the one API key that is sent there, and the first contact.

A key is read only for the provider it belongs to, and is in no repr or message.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx2

from harness.errors import PermanentProviderError, UsageError
from harness.models import ModelOptions

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
    """The key in an environment variable; raises UsageError that names the variable when it is missing."""
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
        except httpx2.ProxyError as error:
            return f"proxy: {error}", "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
        except httpx2.ConnectError as error:
            return str(error), _advice(error)
        except httpx2.HTTPError:
            return None  # it accepted the connection, and may not support HEAD
        return None


def _advice(error: BaseException) -> str:
    """What to do about a connection that failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "Check the host's name, and that this machine is online"
        cause = cause.__cause__ or cause.__context__
    if "SSL" in str(error):
        return "Check http:// or https://, and the certificate (SSL_CERT_FILE names another authority)"
    return "Is the server running at that address?"
