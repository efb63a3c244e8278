"""Whether a sandbox can hold CUDA: it works inside, ends when killed, and leaves nothing behind.

The probe is our own program and has no reason to lie; that a process is gone and memory is free is read from
outside, by NVML.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.job import ExitFacts, Job, Limits, Process
from sandboxes.nvml import Xid
from tests.gpu.bench import OTHERS, SANDBOX, Bench
from tools.gpu_results import Fact


def in_every_sandbox(rank: float) -> pytest.MarkDecorator:
    """`rank`: of SANDBOX, in which the judge's own items run; the others are late."""
    ranks = {SANDBOX: rank, **dict.fromkeys(OTHERS, 11)}
    return pytest.mark.parametrize(
        "backend", [pytest.param(name, marks=pytest.mark.gpu(rank=at)) for name, at in ranks.items()]
    )


_MEMORY_BYTES = 8 << 30  # of the host; a CUDA context takes some hundred MB
_WALL_S = 60.0
_GONE_S = 30.0
_XID_S = 2.0  # for the first report; the driver's log is written at once
_POLL_S = 0.02
_STILL_S = 0.3
_MESSAGE_BYTES = 4096
_SEEN = Path(__file__).with_name("seen.py")
_READ_BY_DRIVER = ("devices", "modules", "version", "driver/nvidia*/**/*")  # below /proc
# The driver's own share of the memory moves by some MB between readings.
_MEMORY_SLACK_BYTES = 64 << 20


@contextlib.contextmanager
def _started(gpu: Bench, backend: str, *words: str) -> Iterator[Process]:
    """The probe program in a sandbox, closed afterwards. Skips without that sandbox."""
    mode, *more = words
    argv = ["{scratch}/probe", mode, "{channel}", *more]
    with _job(gpu, backend, argv, {"probe": gpu.probe()}) as process:
        yield process


@contextlib.contextmanager
def _job(gpu: Bench, backend: str, argv: list[str], inputs: dict[str, Path]) -> Iterator[Process]:
    try:
        sandbox = gpu.sandbox(backend)
    except SandboxError as error:
        pytest.skip(str(error))
    limits = Limits(wall_s=_WALL_S, memory_bytes=_MEMORY_BYTES)
    job = Job(role="run", argv=argv, limits=limits, inputs=inputs, device=gpu.slot.uuid)
    with contextlib.closing(sandbox), contextlib.closing(sandbox.start(job)) as process:
        yield process


def _end(process: Process) -> ExitFacts:
    """How it ended; the job's own deadline bounds the wait."""
    facts = process.wait(2 * _WALL_S)
    if facts is None:
        pytest.fail(f"still running {2 * _WALL_S:.0f} s after its start, twice its limit")
    return facts


def _answer(facts: ExitFacts, doing: str) -> dict[str, Fact]:
    """The JSON object that the program printed. Fails when there is none."""
    told = None
    with contextlib.suppress(ValueError, RecursionError, IndexError):
        told = json.loads(facts.output.strip().splitlines()[-1])
    if facts.status == "ok" and isinstance(told, dict):
        return {str(k): v for k, v in told.items() if isinstance(v, str | int | float)}
    how = f"{facts.status} (code {facts.code}, signal {facts.signal})"
    pytest.fail(f"{doing}: {how}: {facts.output.strip()[-400:]}")


def _known(gpu: Bench, backend: str) -> dict[str, Fact]:
    """A kernel whose result and time are known. Fails for a wrong result."""
    with _started(gpu, backend, "known") as process:
        facts = _end(process)
    told = _answer(facts, "the known kernel")
    told["wall_s"] = round(facts.wall_s, 3)
    if told.get("wrong_elements") != 0:
        pytest.fail(f"the known kernel gave a wrong result: {told}")
    return told


# The estimates are guesses until the first run on a GPU.


@pytest.mark.gpu(estimate_s=20.0)
@in_every_sandbox(0.5)
def test_known(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """CUDA starts, allocates, launches and copies inside, with the right result."""
    facts |= _known(gpu, backend)


@pytest.mark.gpu(estimate_s=10.0)
@in_every_sandbox(0.6)
def test_same_gpu(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """CUDA sees the judge's GPU and no other, by the host's libcuda, which can read the driver's files."""
    if backend == "docker":
        pytest.skip("its image has a Python and a libcuda of its own")
    found = (path for pattern in _READ_BY_DRIVER for path in Path("/proc").glob(pattern))
    files = [str(path) for path in sorted(found) if path.is_file() and path.stat().st_mode & 0o004]
    argv = [sys.executable, "-I", "-S", "{scratch}/seen.py", *files]
    with _job(gpu, backend, argv, {"seen.py": _SEEN}) as process:
        facts |= _answer(_end(process), "to ask which GPU there is")
    expected = gpu.judge_uuid().partition("-")[2].replace("-", "").lower()
    if facts["gpus"] != expected:
        pytest.fail(f"the judge has GPU {expected}, a job sees {facts['gpus'] or 'none'}")
    if facts.pop("libcuda_sha256") != hashlib.sha256(gpu.libcuda().read_bytes()).hexdigest():
        pytest.fail(f"a job loads another libcuda than the judge: {facts['libcuda']}")
    # With the stand-in no device is handed in, so Landlock closes these files.
    if facts["unreadable"] != "-" and not gpu.emulated:
        pytest.fail(f"a job cannot read {facts['unreadable']}")


@pytest.mark.gpu(estimate_s=45.0)
@in_every_sandbox(2.5)
def test_hang(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """A kernel without end is killed, the GPU is free and well afterwards."""
    uuid = gpu.slot.gpu.uuid
    facts["known_us_before"] = _known(gpu, backend).get("kernel_us")
    others = gpu.nvml.processes(uuid)
    used_bytes = gpu.nvml.memory(uuid).used_bytes
    watch = gpu.watch_xids()
    with contextlib.nullcontext() if watch is None else watch:
        with _started(gpu, backend, "hang") as process:
            _hear(process, b"running")
            facts["seen_by_nvml"] = len(gpu.nvml.processes(uuid) - others)
            began = time.monotonic()
            process.kill()
            end = _end(process)
            facts |= {"status": end.status, "killed_s": round(time.monotonic() - began, 3)}
        try:
            gone_s, left_bytes = _wait_until_gone(gpu, others, used_bytes, began)
            facts |= {"gpu_free_s": round(gone_s, 3), "memory_left_bytes": left_bytes}
        finally:
            facts["xids"] = _named(None if watch is None else watch.take(_XID_S))
    facts["known_us_after"] = _known(gpu, backend).get("kernel_us")
    if end.status == "ok":
        pytest.fail("the kernel without end has ended by itself")


def _named(xids: list[Xid] | None) -> str | None:
    return None if xids is None else ", ".join(map(str, xids)) or "-"


def _hear(process: Process, word: bytes) -> None:
    """Wait until the program says so. Fails when it ends, or says something else."""
    process.channel.settimeout(_WALL_S)
    try:
        heard = process.channel.recv(_MESSAGE_BYTES)
    except OSError:
        heard = b""
    if heard != word:
        process.kill()
        _answer(_end(process), f"before it said {word.decode()!r}")
        pytest.fail(f"it did not say {word.decode()!r}")


def _wait_until_gone(gpu: Bench, others: frozenset[int], used_bytes: int, began: float) -> tuple[float, int]:
    """Seconds since `began` until NVML lists no new process and memory is back; what is still held then."""
    uuid = gpu.slot.gpu.uuid
    while True:
        new = gpu.nvml.processes(uuid) - others
        left = gpu.nvml.memory(uuid).used_bytes - used_bytes
        waited = time.monotonic() - began
        if not new and left <= _MEMORY_SLACK_BYTES:
            return waited, max(0, left)
        if waited > _GONE_S:
            pytest.fail(
                f"{waited:.0f} s after the kill NVML lists {len(new)} of its processes and {left} bytes more "
                "in use than before: reset the GPU before it is used again"
            )
        time.sleep(_POLL_S)


@pytest.mark.gpu(estimate_s=30.0)
@in_every_sandbox(2.5)
def test_fault(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """An illegal write is the job's fault, and the GPU is well afterwards."""
    watch = gpu.watch_xids()
    with contextlib.nullcontext() if watch is None else watch:
        with _started(gpu, backend, "illegal") as process:
            end = _end(process)
        xids = None if watch is None else watch.take(_XID_S)
    facts |= {"status": end.status, "printed": end.output.strip()[-200:], "xids": _named(xids)}
    if "cudaErrorIllegalAddress" not in end.output:
        pytest.fail("an illegal write did not end as cudaErrorIllegalAddress")
    if any(xid.blame == "device" for xid in xids or ()):
        pytest.fail("an illegal write was reported as a fault of the GPU")
    facts["known_us_after"] = _known(gpu, backend).get("kernel_us")


@pytest.mark.gpu(estimate_s=45.0)
@in_every_sandbox(2.5)
def test_residue(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """Nothing that one process left in device memory is seen by the next."""
    key = secrets.token_hex(8)
    told: list[dict[str, Fact]] = []
    for mode in ("fill", "search"):
        with _started(gpu, backend, mode, key) as process:
            told.append(_answer(_end(process), f"to {mode} device memory"))
    written, read = told[0].get("bytes"), told[1].get("bytes")
    facts |= {"written_bytes": written, "searched_bytes": read, **told[1]}
    if not isinstance(written, int) or not isinstance(read, int) or not 0 < 0.9 * written <= read:
        pytest.fail("too little memory was written or searched to say anything")
    if facts.get("words_equal") != 0:
        pytest.fail("a process read what another one had left in device memory")


@pytest.mark.gpu(estimate_s=20.0)
@in_every_sandbox(2.5)
def test_freeze(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """A CUDA worker that is frozen stands still, and goes on with a right result."""
    with _started(gpu, backend, "count") as process:
        channel = process.channel
        _hear(process, b"1")
        began = time.monotonic()
        process.pause(True)
        facts["frozen_s"] = round(time.monotonic() - began, 4)
        facts["rounds_before"] = _drain(process) + 1
        time.sleep(_STILL_S)
        facts["rounds_while_frozen"] = moved = _drain(process)
        began = time.monotonic()
        process.pause(False)
        channel.settimeout(_WALL_S)
        alive = channel.recv(_MESSAGE_BYTES)
        facts["thawed_s"] = round(time.monotonic() - began, 4)
        channel.send(b"stop")
        _drain_until_end(process)
        told = _answer(_end(process), "counting on after the thaw")
    facts |= told
    if moved or not alive or told.get("wrong_elements") != 0:
        pytest.fail("a frozen worker moved, or came back with a wrong result")


def _drain(process: Process) -> int:
    process.channel.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while process.channel.recv(_MESSAGE_BYTES):
            count += 1
    return count


def _drain_until_end(process: Process) -> None:
    """Take what it sends until it hangs up, so that it never waits for us."""
    process.channel.settimeout(_WALL_S)
    try:
        while process.channel.recv(_MESSAGE_BYTES):
            continue
    except OSError as error:
        pytest.fail(f"it neither ended nor went on after `stop`: {error}")
