"""Whether graders may serve one run: what would make their grades differ is compared before they get work."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from harness.device.machine import machine_facts
from harness.fleet.messages import HostFacts, HostSpec
from harness.grading.setup import BuildSetup, GradingSetup
from harness.records.grade import GRADER_VERSION


def facts_of(spec: HostSpec, setup: BuildSetup) -> HostFacts:
    """Of the driver, or of a process that grades for it."""
    graded = setup if isinstance(setup, GradingSetup) else None
    return HostFacts(
        node=platform.node(),
        grader_version=GRADER_VERSION,
        machine=graded.machine if graded else machine_facts(setup.toolchain),
        toolchain={name: str(value) for name, value in setup.toolchain.facts(spec.target).items()},
        sandbox=setup.sandbox.name,
        sandbox_facts=setup.sandbox.facts(),
        device_bytes=graded.grader.device_bytes if graded else None,
    )


def disagreements(first: HostFacts, other: HostFacts) -> list[str]:
    """What differs between two graders, such as `torch 2.13.0 there, 2.10.0 here`, and counts.

    Host names, CPUs and UUIDs may differ. A process that only builds has no GPU, and need not have one.
    """
    pairs = [*_software(first, other), *_devices(first, other)]
    return [f"{what} {theirs} there, {ours} here" for what, ours, theirs in pairs if ours != theirs]


def _software(first: HostFacts, other: HostFacts) -> Iterator[tuple[str, object, object]]:
    yield "grader version", first.grader_version, other.grader_version
    yield "sandbox", first.sandbox, other.sandbox
    for name in sorted({*first.toolchain, *other.toolchain}):
        yield name, first.toolchain.get(name), other.toolchain.get(name)
    for promise in sorted({*first.sandbox_facts, *other.sandbox_facts}):
        ours, theirs = first.sandbox_facts.get(promise), other.sandbox_facts.get(promise)
        yield f"sandbox's {promise}", ours, theirs


def _devices(first: HostFacts, other: HostFacts) -> Iterator[tuple[str, object, object]]:
    if first.device_bytes is None or other.device_bytes is None:
        return
    yield "GPU", first.machine.gpu, other.machine.gpu
    yield "driver", first.machine.driver, other.machine.driver
