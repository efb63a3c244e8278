"""The landlock sandbox, with real processes."""

from __future__ import annotations

import pytest

from sandboxes.landlock import LandlockBackend
from tests.sandboxes.behaviours import Behaviours, Starter, end_of

_REASON = LandlockBackend().unavailable()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.fixture
def backend() -> LandlockBackend:
    """The backend under test."""
    return LandlockBackend()


class TestLandlock(Behaviours):
    """What all backends do."""
