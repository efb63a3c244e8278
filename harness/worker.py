"""Runs INSIDE the sandbox: loads one contender and calls it on buffers it is given.

Owns: nothing that matters. Imports only the standard library and torch, nothing of ours. It holds no
secret and reports no verdict: its figures are claims, which the judge compares with its own clock.
Invariant: inputs are mapped only while a call runs, always at the same addresses.

Started as: python -I -S worker.py CHANNEL_FD SITE_DIRECTORY...
Messages (SEQPACKET): JSON from the judge; JSON or the single byte b"D" (done) from here.
  load  {kind: project|reference|null, ...}         -> {ok, operators} or {error, where}
  plan  {set_bytes, sets, operands, scalars}        -> {ok}
  call  {sets, rounds} with an arena's descriptor   -> b"D", then {ns: [...]} once unmapped;
                                                       or {raised: text}
"""

from __future__ import annotations

import sys

for _directory in sys.argv[2:]:
    sys.path.append(_directory)

import array  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import mmap  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

_MAP_FIXED, _MAP_POPULATE, _MAP_NORESERVE = 0x10, 0x8000, 0x4000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MESSAGE_BYTES = 1 << 16
_clock = time.perf_counter_ns

_libc = ctypes.CDLL(None, use_errno=True)
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip


def _map(address: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
    result = _libc.mmap(address, size, protection, flags, descriptor, 0)
    if result is None or result == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap failed")
    return int(result)


class Pool:
    """A range of addresses that is empty but for the moments in which an arena is mapped there."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.size = plan["set_bytes"] * plan["sets"]
        self.address = _map(None, self.size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1)
        self.operands = [
            [self._tensor(self.address + index * plan["set_bytes"], o) for o in plan["operands"]]
            for index in range(plan["sets"])
        ]
        self.names = [o["name"] for o in plan["operands"]]
        self.scalars = plan["scalars"]
        self.writes = [i for i, o in enumerate(plan["operands"]) if o["role"] != "in"]
        self.reads = [i for i, o in enumerate(plan["operands"]) if o["role"] != "out"]

    @staticmethod
    def _tensor(base: int, operand: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, operand["dtype"])
        count = 1
        for axis in operand["shape"]:
            count *= axis
        if count == 0:
            return torch.empty(operand["shape"], dtype=dtype)
        buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(base + operand["offset"])
        return torch.frombuffer(buffer, dtype=dtype).reshape(operand["shape"])

    def show(self, descriptor: int, size: int) -> None:
        """Map an arena over the start of the pool, all its pages at once."""
        flags = mmap.MAP_SHARED | _MAP_FIXED | _MAP_POPULATE
        _map(self.address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor)

    def hide(self) -> None:
        """Cover the pool with nothing."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
        _map(self.address, self.size, 0, flags, -1)

    def release(self) -> None:
        """Give the addresses back: a worker of ours lives through thousands of plans."""
        _libc.munmap(self.address, self.size)


class Contender:
    """What is called: a project's function, a reference, or nothing at all."""

    operators = 0

    def load(self, message: dict[str, Any]) -> None:
        self.kind = message["kind"]
        if self.kind == "null":
            return
        package = Path(message["path"]).resolve()
        locations = [str(package.parent)] if self.kind == "project" else None
        spec = importlib.util.spec_from_file_location(
            message["module"], package, submodule_search_locations=locations
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{package} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[message["module"]] = module
        spec.loader.exec_module(module)
        self.function = getattr(module, message["function"])
        if not callable(self.function):
            raise AttributeError(f"{message['function']} is not callable")
        if message.get("namespace"):
            prefix = message["namespace"] + "::"
            self.operators = sum(name.startswith(prefix) for name in torch._C._dispatch_get_all_op_names())

    def run(self, pool: Pool, index: int) -> int:
        """Call on one set; nanoseconds that the call itself took."""
        operands = pool.operands[index]
        if self.kind == "null":
            return 0
        if self.kind == "project":
            start = _clock()
            self.function(*operands, **pool.scalars)
            return _clock() - start
        arguments = {pool.names[i]: operands[i] for i in pool.reads}
        start = _clock()
        outputs = self.function({**arguments, **pool.scalars})
        elapsed = _clock() - start
        # A reference returns tensors; writing them to the judge's buffer is not charged to it.
        for i, output in zip(pool.writes, outputs, strict=True):
            operands[i].copy_(output)
        return elapsed


def _receive(channel: socket.socket) -> tuple[dict[str, Any] | None, int]:
    """The next message and the descriptor that came with it, or -1. None at the end."""
    width = array.array("i").itemsize
    data, ancillary, _, _ = channel.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(width))
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % width])
    if not data:
        return None, -1
    return json.loads(data), descriptors[0] if descriptors else -1


def _call(channel: socket.socket, contender: Contender, pool: Pool, message: dict[str, Any], fd: int) -> None:
    sets = message["sets"]
    pool.show(fd, message["size"])
    durations = []
    try:
        for _ in range(message["rounds"]):
            for index in range(sets):
                durations.append(contender.run(pool, index))
    except Exception:  # noqa: BLE001 - whatever a student's op raises is what we report
        pool.hide()
        os.close(fd)
        _send(channel, {"raised": traceback.format_exc(limit=-3)[-4000:]})
        return
    channel.send(b"D")
    pool.hide()
    os.close(fd)
    _send(channel, {"ns": durations[-4000:]})


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.send(json.dumps(message).encode())


def main() -> None:
    """Serve until the judge hangs up."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    # Large blocks are reused rather than returned to the kernel, so that an op that returns fresh
    # tensors (the references do) does not pay page faults on every call.
    _libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    _libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    _send(channel, {"hello": torch.__version__, "pid": os.getpid()})
    contender, pool = Contender(), None
    while True:
        message, descriptor = _receive(channel)
        if message is None:
            return
        if message["op"] == "load":
            try:
                contender.load(message)
            except Exception as error:  # noqa: BLE001 - reported, and judged outside
                where = "function" if isinstance(error, AttributeError) else "import"
                _send(channel, {"error": traceback.format_exc(limit=-3)[-4000:], "where": where})
                continue
            gc.collect()
            gc.disable()
            _send(channel, {"ok": True, "operators": contender.operators})
        elif message["op"] == "plan":
            if pool is not None:
                pool.release()
            pool = Pool(message)
            _send(channel, {"ok": True})
        elif pool is not None:
            _call(channel, contender, pool, message, descriptor)


if __name__ == "__main__":
    main()
