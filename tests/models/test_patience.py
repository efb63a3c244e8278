"""How long a server may make us wait."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from harness.models.patience import long_wait_s, refuse_long_wait

httpx2 = pytest.importorskip("httpx2", reason="needs anthropic (pip install anthropic)")


@pytest.mark.parametrize("asked", [None, "", "3", "120", "-1", "soon", "nan"])
def test_a_short_wait_is_the_sdks(asked: str | None) -> None:
    """Up to two minutes the SDK waits and tries again; so it does where nothing can be read."""
    headers = {} if asked is None else {"retry-after": asked}
    response = httpx2.Response(429, headers=headers)
    refuse_long_wait(response)
    assert long_wait_s(headers) is None and "x-should-retry" not in response.headers


_DATE = formatdate(time.time() + 9000, usegmt=True)


@pytest.mark.parametrize("asked", ["121", "86400", "inf", pytest.param(_DATE, id="date")])
def test_a_long_wait_is_refused(asked: str) -> None:
    """Seconds or a date: beyond two minutes the SDK is told not to try again."""
    response = httpx2.Response(429, headers={"Retry-After": asked})
    refuse_long_wait(response)
    wait_s = long_wait_s(response.headers)
    assert wait_s is not None and wait_s > 120
    assert response.headers["x-should-retry"] == "false"
