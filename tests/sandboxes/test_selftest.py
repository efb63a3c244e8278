"""The self-test, on a real sandbox and on made-up reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandboxes.job import ExitFacts, Job, Process, Status
from sandboxes.registry import PROMISES, SelfTestReport, open_sandbox, promised_by, run_self_test
from sandboxes.selftest_job import ATTEMPTS


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
    """The local backend promises little, and that holds."""
    assert local.sandbox == "local"
    assert local.broken == ()
    assert len(local.promises) == len(PROMISES)


def test_holes_are_found(local: SelfTestReport) -> None:
    """On a backend that does not isolate, the self-test sees files, the network and abstract sockets."""
    held = {one.name: one.held for one in local.promises}
    assert not any(held[name] for name in ("files", "writing", "network", "abstract sockets"))
    assert held["memory limit"]


@dataclass
class _Answer:
    """A sandbox whose job says what the test wants."""

    output: str
    status: Status = "ok"
    name: str = "bubblewrap"

    def facts(self) -> dict[str, str]:
        return {}

    def prepare(self, job: Job, count: int = 1) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...

    def start(self, job: Job) -> Process:
        answer = self

        class Said:
            def wait(self, timeout_s: float | None = None) -> ExitFacts:
                return ExitFacts(answer.status, 0, None, 0.1, None, None, answer.output)

            def kill(self) -> None: ...

            def pause(self, paused: bool) -> None: ...

            def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
                return []

            def close(self) -> None: ...

        return Said()  # type: ignore[return-value] # has no channel: the self-test uses none


def _lines(leaks: Mapping[str, str | None]) -> str:
    return "\n".join(json.dumps({"promise": name, "leak": leak}) for name, leak in leaks.items())


def broken(output: str, status: Status = "ok") -> dict[str, str]:
    """Broken promises and what succeeded, for a job with this output."""
    report = run_self_test(_Answer(output, status=status), sys.executable)
    return {one.name: one.detail for one in report.broken}


def test_a_broken_promise_is_named() -> None:
    """With what succeeded; nothing is broken when every attempt was refused."""
    assert broken(_lines(dict.fromkeys(PROMISES))) == {}
    assert broken(_lines(dict.fromkeys(PROMISES) | {"mounts": "fsopen"})) == {"mounts": "fsopen"}


@pytest.mark.parametrize("output", ["", "garbage\n[]\n{}\n12\nnull", '{"promise": "made up", "leak": null}'])
def test_silence_and_nonsense_keep_no_promise(output: str) -> None:
    """A promise holds only when its attempt was refused."""
    assert set(broken(output)) == set(PROMISES)


def test_being_killed_for_memory_keeps_the_promise() -> None:
    """Ending during any other attempt proves nothing."""
    attempted = {name: None for name in PROMISES if name != "memory limit"}
    output = _lines(attempted) + '\n{"trying": "memory limit"}'
    assert broken(output, "oom") == {}
    assert list(broken(output, "wall_timeout")) == ["memory limit"]
