"""What the end of a worker means for whoever was judged in it: from exit facts to a cause and words."""

from __future__ import annotations

import signal

from harness.outcome import Cause
from harness.records import Finding
from sandboxes.job import ExitFacts, raise_if_infra

_OUTPUT_SHOWN = 600  # at either end: an error comes first, and torch's backtrace after it

_CAUSES: dict[str, Cause] = {
    "ok": Cause.EXITED_EARLY,
    "nonzero": Cause.EXITED_EARLY,
    "signal": Cause.SIGNAL,
    "oom": Cause.OUT_OF_MEMORY,
    "wall_timeout": Cause.WALL_TIMEOUT,
    "cpu_timeout": Cause.WALL_TIMEOUT,
    "output_limit": Cause.OUTPUT_LIMIT,
    "disk_limit": Cause.OUTPUT_LIMIT,
    "gpu_fault": Cause.SIGNAL,
}


def exit_finding(facts: ExitFacts, doing: str) -> Finding:
    """What the end of a worker means. Raises SandboxError where it is ours."""
    raise_if_infra(facts, "a worker ran")
    how = {
        "ok": "the process exited by itself (code 0)",
        "nonzero": f"the process exited by itself (code {facts.code})",
        "signal": f"the process was killed by {_signal_name(facts.signal)}",
        "oom": f"the process used more memory than allowed ({facts.peak_memory_bytes} bytes)",
        "wall_timeout": "the process ran into its wall-clock limit",
        "cpu_timeout": "the process ran into its CPU limit",
        "output_limit": "the process printed without end",
        "disk_limit": "the process wrote more than allowed",
        "gpu_fault": "the GPU reported a fault of the process",
    }[facts.status]
    output = facts.output.strip()
    if len(output) > 2 * _OUTPUT_SHOWN:
        output = f"{output[:_OUTPUT_SHOWN]}\n...\n{output[-_OUTPUT_SHOWN:]}"
    message = f"{how} {doing}".strip() + (f"\nits output (untrusted): {output}" if output else "")
    return Finding(cause=_CAUSES[facts.status], message=message)


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
