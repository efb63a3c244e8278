"""Choosing a sandbox by name: the order, the reasons, and that none is used that breaks a promise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.errors import SandboxError, UsageError
from sandboxes.job import Backend, Status
from sandboxes.local import LocalBackend
from sandboxes.registry import (
    PROMISES,
    SelfTestReport,
    automatic,
    choose_sandbox,
    open_sandbox,
    promised_by,
    run_self_test,
)
from sandboxes.selftest_job import ATTEMPTS
from tests.fakes.sandbox import FakeSandbox, exit_facts

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
    assert choice.sandbox.name == "local"
    assert "docker: it is not installed" in choice.why
    assert choose_sandbox("local", BACKENDS, {}).why == "asked for by name"


@pytest.mark.slow
def test_what_auto_does_not_find_is_not_told() -> None:
    """With a sandbox at hand there is nothing to do; one that was asked for, or is broken, is told."""
    backends = BACKENDS | {"bubblewrap": LocalBackend}
    quiet = choose_sandbox("auto", backends, {})
    assert "promises" in quiet.why and "docker" not in quiet.why
    assert "docker: it is not installed" in choose_sandbox("docker,bubblewrap", backends, {}).why
    broken = choose_sandbox("auto", backends | {"docker": lambda: Named("docker")}, {})
    assert "docker: breaks a promise" in broken.why


def test_auto_never_means_local() -> None:
    """Nothing that breaks a promise is used: it stops, names every reason and hole, and what to install."""
    hole = r"bubblewrap: breaks a promise.*network.*apt-get install bubblewrap.*--sandbox local"
    with pytest.raises(UsageError, match=rf"(?s)docker: it is not installed.*{hole}"):
        choose_sandbox("auto", BACKENDS, {})
    with pytest.raises(UsageError, match=rf"(?s)no sandbox to use\n  {hole}"):
        choose_sandbox("bubblewrap", BACKENDS, {})


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


@pytest.fixture(scope="module")
def local() -> SelfTestReport:
    """The self-test of the backend that promises next to nothing."""
    return run_self_test(open_sandbox("local"), sys.executable)


def test_every_promise_has_an_attempt() -> None:
    """What is shown to people is what is tried, and backends promise nothing else."""
    assert list(ATTEMPTS) == list(PROMISES)
    for backend in ("docker", "bubblewrap", "landlock", "local"):
        assert promised_by(backend, root=True) <= set(PROMISES)
        assert promised_by(backend, root=False) <= promised_by(backend, root=True)


def test_local_keeps_what_it_promises(local: SelfTestReport) -> None:
    """And the self-test sees its holes: files, the network and abstract sockets."""
    assert (local.broken, len(local.promises)) == ((), len(PROMISES))
    held = {one.name: one.held for one in local.promises}
    assert not any(held[name] for name in ("files", "writing", "network", "abstract sockets"))
    assert held["memory limit"]


def _lines(leaks: Mapping[str, str | None]) -> str:
    return "\n".join(json.dumps({"promise": name, "leak": leak}) for name, leak in leaks.items())


def broken(output: str, status: Status = "ok") -> dict[str, str]:
    """Broken promises and what succeeded, for a job with this output."""
    report = run_self_test(FakeSandbox(exit_facts(status, output)), sys.executable)
    return {one.name: one.detail for one in report.broken}


def test_a_promise_holds_only_when_its_attempt_was_refused() -> None:
    """What succeeded is named; silence and nonsense prove nothing, nor does an end during an attempt.

    Except on memory: there it is the limit.
    """
    refused = dict.fromkeys(PROMISES)
    assert broken(_lines(refused)) == {}
    assert broken(_lines(refused | {"mounts": "fsopen"})) == {"mounts": "fsopen"}
    for output in ("", "garbage\n[]\n{}\n12\nnull", '{"promise": "made up", "leak": null}'):
        assert set(broken(output)) == set(PROMISES)
    del refused["memory limit"]
    output = _lines(refused) + '\n{"trying": "memory limit"}'
    assert broken(output, "oom") == {}
    assert list(broken(output, "wall_timeout")) == ["memory limit"]
