"""Choosing a sandbox by name: the order, the reasons, and that none is used that breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import SandboxError, UsageError
from sandboxes.job import Backend
from sandboxes.local import LocalBackend
from sandboxes.registry import automatic, choose_sandbox, open_sandbox

Make = Callable[[], Backend]


class Named(LocalBackend):
    """The local backend under another name: it keeps none of that one's promises."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def missing() -> Backend:
    """A backend that is not there."""
    raise SandboxError("it is not installed: install it")


BACKENDS: dict[str, Make] = {
    "docker": missing,
    "bubblewrap": lambda: Named("bubblewrap"),
    "landlock": missing,
    "local": LocalBackend,
}


def test_local_is_taken_when_spelled_out() -> None:
    """It needs no probe; the choice says why nothing stronger was taken."""
    choice = choose_sandbox("auto,local", BACKENDS, {})
    assert (choice.sandbox.name, choice.report) == ("local", None)
    assert "docker: it is not installed" in choice.why
    assert choose_sandbox("local", BACKENDS, {}).why == "asked for by name"


def test_what_auto_does_not_find_is_not_told() -> None:
    """With a sandbox at hand there is nothing to do; one that was asked for, or is broken, is told."""
    backends = BACKENDS | {"bubblewrap": LocalBackend}
    quiet = choose_sandbox("auto", backends, {})
    assert "promises" in quiet.why and "docker" not in quiet.why
    assert "docker: it is not installed" in choose_sandbox("docker,bubblewrap", backends, {}).why
    broken = choose_sandbox("auto", backends | {"docker": lambda: Named("docker")}, {})
    assert "docker: breaks a promise" in broken.why


def test_one_that_breaks_a_promise_is_refused() -> None:
    """A backend whose probe shows a hole is not used, and the hole is named."""
    with pytest.raises(UsageError, match=r"bubblewrap: breaks a promise.*network") as error:
        choose_sandbox("bubblewrap", BACKENDS, {})
    assert "--sandbox local" in str(error.value)


def test_auto_never_means_local() -> None:
    """With nothing that isolates it stops, names every reason, and what to install."""
    with pytest.raises(UsageError, match="no sandbox to use") as error:
        choose_sandbox("auto", BACKENDS, {})
    for word in ("docker: it is not installed", "bubblewrap: breaks", "apt-get install bubblewrap"):
        assert word in str(error.value)


@pytest.mark.parametrize("ask", [choose_sandbox, open_sandbox])
def test_an_unknown_name_is_an_error_of_usage(ask: Callable[[str], object]) -> None:
    """The message lists the names that there are."""
    with pytest.raises(UsageError, match=r"'magic' is no sandbox: there are auto, docker, bubblewrap"):
        ask("magic")
    with pytest.raises(UsageError, match="'magic' is no sandbox"):
        choose_sandbox("local,magic", BACKENDS, {})  # before anything is tried


def test_landlock_counts_only_within_a_container(tmp_path: Path) -> None:
    """`auto` takes it where a container stands around us: an engine's mark, or a pod's variable."""
    assert automatic({}, tmp_path) == ("docker", "bubblewrap")
    assert automatic({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)[-1] == "landlock"
    (tmp_path / ".dockerenv").touch()
    assert automatic({}, tmp_path)[-1] == "landlock"
