"""Whether a sandbox can hold CUDA: it works inside, ends when killed, and leaves nothing behind.

What the program says of itself is only taken where it is our own and cannot gain by lying; that a process
is gone and memory is free is seen from outside, by NVML.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial

from harness.errors import SandboxError
from harness.records.gpu_check import Fact
from sandboxes.job import ExitFacts, Job, Limits, Process
from sandboxes.nvml import Xid
from tools.gpu_check.item import Bench, FellShort, Item, NotHere

BACKENDS = ("docker", "bubblewrap", "landlock", "local")
_MEMORY_BYTES = 8 << 30  # of the host; a CUDA context takes some hundred MB
_WALL_S = 60.0
_GONE_S = 30.0
_XID_S = 2.0  # for the first report; the driver's log is written at once
_POLL_S = 0.02
_STILL_S = 0.3
_MESSAGE_BYTES = 4096
# The driver's own share of the memory moves by some MB between readings.
_MEMORY_SLACK_BYTES = 64 << 20


@contextlib.contextmanager
def _started(bench: Bench, backend: str, *words: str) -> Iterator[Process]:
    """The probe program in a sandbox; nothing of it is left afterwards. Raises NotHere."""
    try:
        sandbox = bench.sandbox(backend)
    except SandboxError as error:
        raise NotHere(str(error)) from error
    mode, *more = words
    job = Job(
        role="run",
        argv=["{scratch}/probe", mode, "{channel}", *more],
        limits=Limits(wall_s=_WALL_S, memory_bytes=_MEMORY_BYTES),
        inputs={"probe": bench.probe()},
        device=bench.slot.uuid,
    )
    try:
        process = sandbox.start(job)
        try:
            yield process
        finally:
            process.close()
    finally:
        sandbox.close()


def _end(process: Process) -> ExitFacts:
    """How it ended; the job's own deadline bounds the wait."""
    facts = process.wait(2 * _WALL_S)
    if facts is None:
        raise FellShort(f"still running {2 * _WALL_S:.0f} s after its start, twice its limit")
    return facts


def _answer(facts: ExitFacts, doing: str) -> dict[str, Fact]:
    """The JSON object that the program printed. Raises FellShort when it failed or printed none."""
    lines = facts.output.strip().splitlines()
    try:
        told = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        told = None
    if facts.status == "ok" and isinstance(told, dict):
        return {str(k): v for k, v in told.items() if isinstance(v, str | int | float)}
    raise FellShort(
        f"{doing}: {facts.status} (code {facts.code}, signal {facts.signal}): {facts.output.strip()[-400:]}"
    )


def _known(bench: Bench, backend: str) -> dict[str, Fact]:
    """A kernel whose result and time are known; raises FellShort when the result is wrong."""
    with _started(bench, backend, "known") as process:
        facts = _end(process)
    told = _answer(facts, "the known kernel")
    told["wall_s"] = round(facts.wall_s, 3)
    if told.get("wrong_elements") != 0:
        raise FellShort("the known kernel gave a wrong result", told)
    return told


def known(backend: str, bench: Bench) -> dict[str, Fact]:
    """CUDA starts, allocates, launches and copies, and the result is right."""
    return _known(bench, backend)


def hang(backend: str, bench: Bench) -> dict[str, Fact]:
    """A kernel without end dies by kill(), and the GPU is as before."""
    uuid = bench.slot.gpu.uuid
    before = _known(bench, backend)
    others = {process.pid for process in bench.nvml.processes(uuid)}
    used_bytes = bench.nvml.memory(uuid).used_bytes
    watch = bench.watch_xids()
    with contextlib.nullcontext() if watch is None else watch:
        with _started(bench, backend, "hang") as process:
            _hear(process, b"running")
            seen = [p.pid for p in bench.nvml.processes(uuid) if p.pid not in others]
            began = time.monotonic()
            process.kill()
            end = _end(process)
            dead_s = time.monotonic() - began
        gone_s, left_bytes = _wait_until_gone(bench, others, used_bytes, began)
        xids = None if watch is None else watch.take(_XID_S)
    after = _known(bench, backend)
    facts: dict[str, Fact] = {
        "seen_by_nvml": len(seen),
        "status": end.status,
        "killed_s": round(dead_s, 3),
        "gpu_free_s": round(gone_s, 3),
        "memory_left_bytes": left_bytes,
        "xids": _named(xids),
        "known_us_before": before.get("kernel_us"),
        "known_us_after": after.get("kernel_us"),
    }
    if end.status == "ok":
        raise FellShort("the kernel without end has ended by itself", facts)
    return facts


def _named(xids: list[Xid] | None) -> str | None:
    """In words; None where nobody reports them."""
    return None if xids is None else ", ".join(map(str, xids)) or "-"


def _hear(process: Process, word: bytes) -> None:
    """Wait until the program says so. Raises FellShort when it ends, or says something else."""
    process.channel.settimeout(_WALL_S)
    try:
        heard = process.channel.recv(_MESSAGE_BYTES)
    except OSError:
        heard = b""
    if heard != word:
        process.kill()
        _answer(_end(process), f"before it said {word.decode()!r}")
        raise FellShort(f"it did not say {word.decode()!r}")


def _wait_until_gone(bench: Bench, others: set[int], used_bytes: int, began: float) -> tuple[float, int]:
    """Seconds since `began` until NVML lists no new process and memory is back; what is still held then."""
    uuid = bench.slot.gpu.uuid
    while True:
        new = [p.pid for p in bench.nvml.processes(uuid) if p.pid not in others]
        left = bench.nvml.memory(uuid).used_bytes - used_bytes
        waited = time.monotonic() - began
        if not new and left <= _MEMORY_SLACK_BYTES:
            return waited, max(0, left)
        if waited > _GONE_S:
            raise FellShort(
                f"{waited:.0f} s after the kill NVML lists {len(new)} of its processes and {left} bytes more "
                "in use than before: reset the GPU before it is used again"
            )
        time.sleep(_POLL_S)


def fault(backend: str, bench: Bench) -> dict[str, Fact]:
    """An illegal write is told as the job's fault, and the GPU goes on."""
    watch = bench.watch_xids()
    with contextlib.nullcontext() if watch is None else watch:
        with _started(bench, backend, "illegal") as process:
            end = _end(process)
        xids = None if watch is None else watch.take(_XID_S)
    facts: dict[str, Fact] = {
        "status": end.status,
        "told": end.output.strip()[-200:],
        "xids": _named(xids),
    }
    if "cudaErrorIllegalAddress" not in end.output:
        raise FellShort("an illegal write did not end as cudaErrorIllegalAddress", facts)
    if any(xid.blame == "device" for xid in xids or ()):
        raise FellShort("an illegal write was reported as a fault of the GPU", facts)
    return facts | {"known_us_after": _known(bench, backend).get("kernel_us")}


def residue(backend: str, bench: Bench) -> dict[str, Fact]:
    """What one process left in device memory cannot be read by the next."""
    key = secrets.token_hex(8)
    told: list[dict[str, Fact]] = []
    for mode in ("fill", "search"):
        with _started(bench, backend, mode, key) as process:
            told.append(_answer(_end(process), f"to {mode} device memory"))
    written, read = told[0].get("bytes"), told[1].get("bytes")
    facts: dict[str, Fact] = {
        "written_bytes": written,
        "searched_bytes": read,
        "words_equal": told[1].get("words_equal"),
        "words_not_zero": told[1].get("words_not_zero"),
    }
    if not isinstance(written, int) or not isinstance(read, int) or not 0 < 0.9 * written <= read:
        raise FellShort("too little memory was written or searched to say anything", facts)
    if facts["words_equal"] != 0:
        raise FellShort("a process read what another one had left in device memory", facts)
    return facts


def freeze(backend: str, bench: Bench) -> dict[str, Fact]:
    """A worker that is frozen stands still, and goes on afterwards with a right result."""
    with _started(bench, backend, "count") as process:
        channel = process.channel
        _hear(process, b"1")
        began = time.monotonic()
        process.pause(True)
        frozen_s = time.monotonic() - began
        sent = _drain(process)
        time.sleep(_STILL_S)
        moved = _drain(process)
        began = time.monotonic()
        process.pause(False)
        channel.settimeout(_WALL_S)
        alive = channel.recv(_MESSAGE_BYTES)
        thawed_s = time.monotonic() - began
        channel.send(b"stop")
        _drain_until_end(process)
        told = _answer(_end(process), "counting on after the thaw")
    facts: dict[str, Fact] = {
        "frozen_s": round(frozen_s, 4),
        "thawed_s": round(thawed_s, 4),
        "rounds_before": sent + 1,
        "rounds_while_frozen": moved,
        "rounds": told.get("rounds"),
        "wrong_elements": told.get("wrong_elements"),
    }
    if moved or not alive or told.get("wrong_elements") != 0:
        raise FellShort("a frozen worker moved, or came back with a wrong result", facts)
    return facts


def _drain(process: Process) -> int:
    """How many messages were waiting."""
    process.channel.setblocking(False)
    count = 0
    while True:
        try:
            if not process.channel.recv(_MESSAGE_BYTES):
                return count
        except BlockingIOError:
            return count
        count += 1


def _drain_until_end(process: Process) -> None:
    """Take what it sends until it hangs up, so that it never waits for us."""
    process.channel.settimeout(_WALL_S)
    try:
        while process.channel.recv(_MESSAGE_BYTES):
            continue
    except OSError as error:
        raise FellShort(f"it neither ended nor went on after `stop`: {error}") from error


_QUESTIONS: tuple[tuple[Callable[[str, Bench], dict[str, Fact]], str, float], ...] = (
    (known, "CUDA starts, allocates, launches and copies inside, with the right result", 20.0),
    (hang, "a kernel without end is killed, the GPU is free and well afterwards", 45.0),
    (fault, "an illegal write is the job's fault, and the GPU is well afterwards", 30.0),
    (residue, "nothing that one process left in device memory is seen by the next", 45.0),
    (freeze, "a CUDA worker that is frozen stands still, and goes on with a right result", 20.0),
)
# The estimates are guesses until the first run on a GPU.

SANDBOX_ITEMS = tuple(
    Item(f"{measure.__name__}/{backend}", f"{proves} ({backend})", estimate_s, partial(measure, backend))
    for measure, proves, estimate_s in _QUESTIONS
    for backend in BACKENDS
)
