"""The process in which problem files are executed: one fork for each request.

This process executes no problem file but its own small one, so the next request finds it as the first did.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from harness.kernelbench.inspection import Unfit, inspect_problem
from harness.kernelbench.probe import probe_task
from harness.kernelbench.trials import with_trials

_WARM_UP = """\
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.BatchNorm2d(1), torch.nn.ReLU())

    def forward(self, x):
        return torch.softmax(self.layers(x), -1)

def get_inputs():
    return [torch.rand(2, 1, 2, 2)]

def get_init_inputs():
    return []
"""
_PR_SET_PDEATHSIG = 1
_ANSWER_BYTES = 16 << 20


def _inspect(path: str) -> dict[str, Any]:
    source = Path(path).read_text()
    return with_trials(source, inspect_problem(source)).model_dump(mode="json")


_FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "inspect": _inspect,
    "probe": probe_task,
}


def _reason(error: BaseException) -> str:
    """In one line."""
    if isinstance(error, Unfit):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"it needs the module {error.name}, which is not installed"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"it needs more memory than it is given here: {type(error).__name__}"
    text = str(error).strip().partition("\n")[0]
    return f"it cannot be run: {type(error).__name__}: {text[:200]}"


def _in_fork(request: dict[str, Any], answer: int) -> None:
    """Carry out a request and write what came of it; never returns."""
    try:
        # It has a session of its own: with whoever waits for it, it ends.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if request["given"].get("device", "cpu") == "cpu":
            limit = request["memory_bytes"]
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        torch.set_num_threads(1)
        said: dict[str, Any] = {"ok": _FUNCTIONS[request["what"]](**request["given"])}
    except BaseException as error:  # noqa: BLE001 - whatever a problem file does becomes a reason
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        said = {"refused": _reason(error), "unfit": isinstance(error, Unfit), "missing": missing}
    data = json.dumps(said).encode()
    while data:
        data = data[os.write(answer, data) :]
    os._exit(0)


def _carry_out(request: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        _in_fork(request, write)
    os.close(write)
    data, late = _read(read, time.monotonic() + request["wall_s"])
    os.close(read)
    if late:
        with suppress(ProcessLookupError):  # it may not have come to lead its group yet
            os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
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
    """Everything until the end, and whether there was none by the deadline."""
    data = b""
    while len(data) < _ANSWER_BYTES:
        # Nothing is asked before the answer: what can be read there is that whoever asked is gone.
        ready, _, _ = select.select([descriptor, 0], [], [], max(0.0, deadline - time.monotonic()))
        if descriptor not in ready:
            return data, True
        more = os.read(descriptor, 1 << 16)
        if not more:
            break
        data += more
    return data, False


def _warm_up() -> None:
    """What PyTorch imports at its first operators is imported once, before any fork: it takes a second."""
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    with_trials(_WARM_UP, inspect_problem(_WARM_UP))


def main() -> None:
    """Serve until the end of input."""
    _warm_up()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_carry_out(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
