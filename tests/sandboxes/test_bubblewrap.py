"""The bubblewrap sandbox, with real processes."""

from __future__ import annotations

import pytest

from sandboxes.bubblewrap import BubblewrapBackend
from tests.sandboxes.behaviours import Isolated, Starter, end_of

_REASON = BubblewrapBackend().unavailable()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.fixture
def backend() -> BubblewrapBackend:
    """The backend under test."""
    return BubblewrapBackend()


class TestBubblewrap(Isolated):
    """What all backends do that isolate with namespaces."""
