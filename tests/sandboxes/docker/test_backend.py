"""The Docker sandbox, with real containers."""

from __future__ import annotations

import pytest

from tests.sandboxes.behaviours import Isolated

pytestmark = pytest.mark.docker


class TestDocker(Isolated):
    """What all isolating backends do."""
