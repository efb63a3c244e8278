"""The probe, on a real sandbox and on answers of all kinds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandboxes.job import ExitFacts, Job, Process, Status
from sandboxes.registry import open_sandbox
from sandboxes.selftest import PROMISES, ProbeReport, probe, promised_by
from sandboxes.selftest_job import ATTEMPTS


@pytest.fixture(scope="module")
def local() -> ProbeReport:
    """A probe of the backend that promises next to nothing."""
    return probe(open_sandbox("local"), sys.executable)


def test_every_promise_has_an_attempt() -> None:
    """What is shown to people is what is tried, and backends promise nothing else."""
    assert list(ATTEMPTS) == list(PROMISES)
    for backend in ("docker", "bubblewrap", "landlock", "local"):
        assert promised_by(backend, root=True) <= set(PROMISES)
        assert promised_by(backend, root=False) <= promised_by(backend, root=True)


def test_local_keeps_what_it_promises(local: ProbeReport) -> None:
    """The local backend promises little, and that holds."""
    assert local.sandbox == "local"
    assert local.broken == ()
    assert len(local.promises) == len(PROMISES)


def test_holes_are_found(local: ProbeReport) -> None:
    """On a backend that does not isolate, the probe sees files, the network and abstract sockets."""
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

        return Said()  # type: ignore[return-value] # has no channel: the probe uses none


def _lines(leaks: Mapping[str, str | None]) -> str:
    return "\n".join(json.dumps({"promise": name, "leak": leak}) for name, leak in leaks.items())


def test_a_sandbox_that_refuses_everything_passes() -> None:
    """Nothing is broken when every attempt was refused."""
    assert probe(_Answer(_lines(dict.fromkeys(PROMISES))), sys.executable).broken == ()


def test_a_broken_promise_is_named() -> None:
    """One leak refuses the backend, by the promise's name and with what got through."""
    (broken,) = probe(_Answer(_lines(dict.fromkeys(PROMISES) | {"mounts": "fsopen"})), sys.executable).broken
    assert (broken.name, broken.detail) == ("mounts", "fsopen")


@pytest.mark.parametrize("output", ["", "garbage\n[]\n{}\n12\nnull", '{"promise": "made up", "leak": null}'])
def test_silence_is_no_promise_kept(output: str) -> None:
    """A job that says nothing, or nonsense, has kept no promise."""
    assert {one.name for one in probe(_Answer(output), sys.executable).broken} == set(PROMISES)


def test_being_killed_for_memory_is_right() -> None:
    """The attempt on memory may end the job; ending in any other attempt shows nothing."""
    tried = {name: None for name in PROMISES if name != "memory limit"}
    output = _lines(tried) + '\n{"trying": "memory limit"}'
    assert probe(_Answer(output, status="oom"), sys.executable).broken == ()
    assert [one.name for one in probe(_Answer(output, status="wall_timeout"), sys.executable).broken] == [
        "memory limit"
    ]
