"""Choosing a sandbox by name."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from sandboxes.choose import choose_sandbox


@pytest.mark.parametrize("wanted", ["local", "auto", "docker,local"])
def test_first_that_can_be_had(wanted: str) -> None:
    """The first of the names that is built is taken."""
    assert choose_sandbox(wanted).name == "local"


@pytest.mark.parametrize(
    ("wanted", "reason"), [("docker", "docker is not built yet"), ("magic", "'magic' is no sandbox")]
)
def test_none_can_be_had(wanted: str, reason: str) -> None:
    """What cannot be had is an error of usage that says why and how to go on; never a weaker sandbox."""
    with pytest.raises(UsageError, match=reason) as error:
        choose_sandbox(wanted)
    assert "--sandbox local" in f"{error.value}"
