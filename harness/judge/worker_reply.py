"""How a worker's messages and its end are classified.

Whatever a worker sends becomes a well-formed value or none; a claim is only ever a claim.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.outcome import Cause
from harness.records import Finding
from sandboxes.job import ExitFacts, raise_if_infra

Mode = Literal["eager", "graph", "queued", "warm"]
"""How calls are made. All but `eager` exist on CUDA only, and give secondary figures."""
SecondaryMode = Literal["graph", "queued", "warm"]
_MODES: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
_MAX_SINGLE_CLAIMS = 512
_MAX_SETTINGS = 32
_SETTING_CHARS = 48
_OUTPUT_CHARS = 600  # of either end: the error comes first, torch's backtrace after it

_EXITS: dict[str, tuple[Cause, str]] = {
    "ok": (Cause.EXITED_EARLY, "the process exited by itself (code 0)"),
    "nonzero": (Cause.EXITED_EARLY, "the process exited by itself (code {code})"),
    "signal": (Cause.SIGNAL, "the process was killed by {signal}"),
    "oom": (Cause.OUT_OF_MEMORY, "the process used more memory than allowed ({peak} bytes)"),
    "wall_timeout": (Cause.WALL_TIMEOUT, "the process ran into its wall-clock limit"),
    "cpu_timeout": (Cause.WALL_TIMEOUT, "the process ran into its CPU limit"),
    "output_limit": (Cause.OUTPUT_LIMIT, "the process printed without end"),
    "disk_limit": (Cause.OUTPUT_LIMIT, "the process wrote more than allowed"),
    "gpu_fault": (Cause.SIGNAL, "the GPU reported a fault of the process"),
}


@dataclass(frozen=True)
class Reveal:
    """One reveal to one worker: the judge's own figures, and the worker's claims."""

    calls: int
    outside_us: float
    """Of all calls: from before the descriptor is handed over (t0) to t1: when the worker is frozen, and on a
    device when a sample of the outputs has been read."""
    latency_us: float
    """From `done` to t1."""
    claim_us: float | None
    """Of all calls; None without a well-formed claim."""
    each_us: tuple[float, ...] = ()
    """Of single calls: the first ones, or none."""
    aside_us: float = 0.0
    """Copying of a reference's results into the judge's buffers; believed of our own workers only."""
    mode: Mode = "eager"
    """How the calls were made: `eager` where the worker could not do as asked (some ops resist capture)."""
    block: int = 0
    late: int = 0
    """Sampled positions of outputs whose bytes changed after t1."""


def read_claims(
    answer: dict[str, Any], calls: int, *, outside_us: float, latency_us: float, limit_s: float, late: int = 0
) -> Reveal:
    """From a worker's answer, in which only `ns` is known to be a list; a claim beyond `limit_s` is none."""
    limit_ns = int(limit_s * 1e9)

    def microseconds(value: object) -> float | None:
        return value / 1e3 if type(value) is int and 0 <= value <= limit_ns else None

    each = [microseconds(value) for value in answer["ns"][:_MAX_SINGLE_CLAIMS]]
    malformed = None in each or len(each) > calls
    return Reveal(
        calls=calls,
        outside_us=outside_us,
        latency_us=latency_us,
        claim_us=microseconds(answer.get("total_ns")) if answer.get("calls") == calls else None,
        each_us=() if malformed else tuple(us for us in each if us is not None),
        aside_us=microseconds(answer.get("aside_ns")) or 0.0,
        mode=_MODES.get(str(answer.get("mode")), "eager"),
        late=late,
    )


def parse(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def global_settings(message: object) -> dict[str, str]:
    """torch's global settings as short texts by name; malformed entries are dropped."""
    if not isinstance(message, dict):
        return {}
    return {
        name[:_SETTING_CHARS]: str(value)[:_SETTING_CHARS]
        for name, value in list(message.items())[:_MAX_SETTINGS]
        if isinstance(name, str) and isinstance(value, (str, bool, int, float))
    }


def error_text(text: str) -> str:
    """The exception's own line, then the traceback."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] + ("\n" + "\n".join(lines) if len(lines) > 1 else "") if lines else "no message"


def raised_finding(text: str, doing: str) -> Finding:
    memory = any(mark in text for mark in ("MemoryError", "bad_alloc", "can't allocate memory"))
    cause = Cause.OUT_OF_MEMORY if memory else Cause.OP_RAISED
    return Finding(cause=cause, message=f"the op raised {doing}: {error_text(text)}")


def exit_finding(facts: ExitFacts, doing: str) -> Finding:
    """Why a worker's process ended. Raises SandboxError where the sandbox ended it."""
    raise_if_infra(facts, "a worker ran")
    cause, words = _EXITS[facts.status]
    number = facts.signal or 0
    known = number in {one.value for one in signal.Signals}
    name = signal.Signals(number).name if known else f"signal {facts.signal}"
    how = words.format(code=facts.code, signal=name, peak=facts.peak_memory_bytes)
    output = facts.output.strip()
    if len(output) > 2 * _OUTPUT_CHARS:
        output = f"{output[:_OUTPUT_CHARS]}\n...\n{output[-_OUTPUT_CHARS:]}"
    message = f"{how} {doing}".strip() + (f"\nits output (untrusted): {output}" if output else "")
    return Finding(cause=cause, message=message)
