"""Where a model is reached, and the one key that goes there.

A key is read only for the provider it belongs to, and is in no repr or message.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harness.errors import UsageError
from harness.models.protocol import ModelOptions

NO_KEY = "none"
"""What is sent where no key is needed: most local servers want the header and ignore its value."""

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

    def scrub(self, text: str) -> str:
        """The text without the key, or anything that looks like one."""
        if self.key != NO_KEY:
            text = text.replace(self.key, "[key]")
        return _KEY_LIKE.sub("[key]", text)


def required_key(variable: str, model: str) -> str:
    """The key in an environment variable; raises UsageError that names the variable when it is missing."""
    key = optional_key(variable)
    if key is None:
        raise UsageError(f"model {model} needs an API key: set the environment variable {variable}")
    return key


def optional_key(variable: str) -> str | None:
    """The key in an environment variable, or None when it is unset or empty."""
    key = os.environ.get(variable, "").strip()
    # Refused here because an HTTP library would quote the header, and so the key, in its error.
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
