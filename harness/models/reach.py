"""Whether a server can be reached, found out before the first prompt is sent to it.

The SDKs answer a refused connection with retries, which take long and mend no wrong address.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

from harness.models.endpoint import Endpoint
from harness.models.failure import unreachable_error

_TIMEOUT_S: Final = 10.0
"""As the models' own limit for connecting."""
_PAUSE_S: Final = 1.0


class Reach:
    """The first contact with one server; safe for threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        # A transport that replaces the SDK's own connects to nothing.
        self._reached = endpoint.options.http_client is not None

    def check(self) -> None:
        """Connect once, without a key or a prompt; whatever is answered will do.

        Raises PermanentProviderError where no connection can be made at the second try either.
        """
        with self._lock:
            if self._reached:
                return
            fault = self._fault()
            if fault is not None:
                time.sleep(_PAUSE_S)
                fault = self._fault()
            if fault is not None:
                raise unreachable_error(self._endpoint, *fault)
            self._reached = True

    def _fault(self) -> tuple[str, str] | None:
        """Why there is no connection, and what to do about it; None where there is one."""
        import httpx2

        try:
            httpx2.head(self._endpoint.url, timeout=_TIMEOUT_S)
        except httpx2.ConnectTimeout:
            return f"no connection within {_TIMEOUT_S:g} s", "Check the address, firewall and proxy"
        except httpx2.ProxyError as error:
            return f"proxy: {error}", "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
        except httpx2.ConnectError as error:
            return str(error), _advice(error)
        except httpx2.HTTPError:
            return None  # it took the connection, and may know no HEAD
        return None


def _advice(error: BaseException) -> str:
    """What to do about a connection that failed, by what it failed at."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "Check the host's name, and that this machine is online"
        cause = cause.__cause__ or cause.__context__
    if "SSL" in str(error):
        return "Check http:// or https://, and the certificate (SSL_CERT_FILE names another authority)"
    return "Is the server running at that address?"
