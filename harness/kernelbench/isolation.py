"""Executes problem files in forked helper processes: no API keys, no output, bounded memory and time.

The client (`Isolation`) talks to a server process (`python -m harness.kernelbench.isolation`) that imports
PyTorch once, executes no problem file itself, and forks once per request.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import ModuleType
from typing import Any, TypeVar

from harness.errors import HarnessBug
from harness.kernelbench.problems import Unfit

WALL_S = 600.0
"""Per request: inspecting KernelBench's largest recurrent networks takes over a minute on two cores."""
_GRACE_S = 60.0
MEMORY_BYTES = 12 << 30
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_ANSWER_BYTES = 16 << 20
_PR_SET_PDEATHSIG = 1

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Isolation:
    """Executes functions on problem files, one after the other. The server starts with the first request."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # Level 4 of KernelBench downloads models at import unless it is set to stay offline.
        environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.kernelbench.isolation"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
            start_new_session=True,
        )

    def ask(self, function: str, wall_s: float = WALL_S, **given: Any) -> Any:
        """The result of `inspect` or `probe`. Raises Unfit with a reason, HarnessBug if the server died."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        request = {"function": function, "wall_s": wall_s, "given": given}
        # A problem can stop the server, or close its answer and sleep.
        watchdog = threading.Timer(wall_s + _GRACE_S, process.kill)
        watchdog.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            process.kill()
            self.close()
            raise HarnessBug("the server process that executes KernelBench problems died") from error
        finally:
            watchdog.cancel()
        if "refused" in answer:
            raise Unfit(str(answer["refused"]))
        return answer["ok"]

    def close(self) -> None:
        if self._process is not None:
            try:
                self._process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            self._process = None  # the next request starts another


def in_parallel(items: Sequence[Item], work: Callable[[Item, Isolation], Answer]) -> list[Answer]:
    """`work` on every item, in order; each core has an Isolation of its own."""
    own = threading.local()
    made: list[Isolation] = []

    def begin() -> None:
        own.isolation = Isolation()
        made.append(own.isolation)

    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)), initializer=begin) as pool:
            return list(pool.map(lambda item: work(item, own.isolation), items))
    finally:
        for isolation in made:
            isolation.close()


def _reason(error: BaseException) -> str:
    if isinstance(error, Unfit):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"it needs the module {error.name}, which is not installed"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"it needs more memory than it is given here: {type(error).__name__}"
    text = str(error).strip().partition("\n")[0]
    return f"it cannot be run: {type(error).__name__}: {text[:200]}"


def _execute(functions: ModuleType, request: dict[str, Any], answer: int) -> None:
    """In a forked process: carry out a request and write its result or the reason for refusing it."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if request["given"].get("device", "cpu") == "cpu":
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        said = {"ok": getattr(functions, request["function"])(**request["given"])}
    except BaseException as error:  # noqa: BLE001 - whatever a problem file raises becomes a reason
        said = {"refused": _reason(error)}
    data = json.dumps(said).encode()
    while data:
        data = data[os.write(answer, data) :]
    os._exit(0)


def _serve(functions: ModuleType, request: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _execute(functions, request, write)
    os.close(write)
    data, late = _read(read, time.monotonic() + request["wall_s"])
    os.close(read)
    if late:
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):  # it may not lead its process group yet
                kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if late:
        return {"refused": f"it took longer than {request['wall_s']:.0f} s to look at"}
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError:
        ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status >> 8}"
        return {"refused": f"the process that looked at it died ({ended})"}
    return found


def _read(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Everything up to the end of the pipe, and whether the deadline passed or the client is gone."""
    data = b""
    while len(data) < _ANSWER_BYTES:
        # No request is sent before the answer: standard input is readable only at its end.
        ready, _, _ = select.select([descriptor, 0], [], [], max(0.0, deadline - time.monotonic()))
        if descriptor not in ready:
            return data, True
        more = os.read(descriptor, 1 << 16)
        if not more:
            break
        data += more
    return data, False


def main() -> None:
    """Serve requests until the end of input."""
    functions = importlib.import_module("harness.kernelbench.value_probes")
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_serve(functions, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
