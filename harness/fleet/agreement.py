"""Whether graders may serve one run: what would make their grades differ is compared before they get work."""

from __future__ import annotations

from collections.abc import Iterator

from harness.fleet.messages import HostFacts


def disagreements(first: HostFacts, other: HostFacts) -> list[str]:
    """What differs between two graders, such as `torch 2.13.0 there, 2.10.0 here`, and counts.

    Host names, CPUs and UUIDs may differ. A process that only builds has no GPU, and need not have one.
    """
    pairs = [*_software(first, other), *_devices(first, other)]
    return [f"{what} {theirs} there, {ours} here" for what, ours, theirs in pairs if ours != theirs]


def _software(first: HostFacts, other: HostFacts) -> Iterator[tuple[str, object, object]]:
    yield "liftbench", first.liftbench, other.liftbench
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
