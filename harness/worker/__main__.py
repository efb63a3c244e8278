"""Runs INSIDE the sandbox: loads a project, a reference or the null project, and calls it on given buffers.

Inputs are mapped only while a call runs, always at the same addresses; memory that stays mapped is written
by the judge only while this process is frozen.

Started as: python -I -S worker/__main__.py CHANNEL_FD SITE_DIRECTORY...
Messages (SEQPACKET): JSON from the judge; JSON or the single byte b"D" (done) from here.
  start {device}                                    -> {ok}, or {error} where CUDA does not start; before
                                                       the first `load`, and only where there is a GPU
  load  {kind: project|reference|null, ...}         -> {ok, operators} or {error, where}
  plan  {set_bytes, sets, operands, scalars, device, transport}, with a descriptor where the memory of all
        sets stays mapped                           -> {ok}
  call  {sets, rounds, size, mode}, with an arena's descriptor unless its memory stays mapped
                                                    -> b"D"; after `hide` {calls, total_ns, ns: [first
                                                       ones], aside_ns} once unmapped; or {raised: text}
  hide  {}                                          (only after b"D")
  flags {}                                          -> {flags: {name: value}}
  trace {size, watch, namespace, device} with an arena of one set
                                                    -> {trace: {...}} (worker/tracer.py, and of a project
                                                       worker/library_loads.py); or {raised: text}
"""

from __future__ import annotations

import sys

for _directory in sys.argv[2:]:
    sys.path.append(_directory)

import array  # noqa: E402
import ctypes  # noqa: E402
import functools  # noqa: E402
import gc  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import mmap  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

EMULATED = os.environ.get("LIFTBENCH_EMULATED_GPU", "")
"""Libraries of the emulated GPU, in load order, separated by colons."""
for _library in filter(None, EMULATED.split(":")):
    ctypes.CDLL(_library, mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402

_MAP_FIXED, _MAP_POPULATE, _MAP_NORESERVE = 0x10, 0x8000, 0x4000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MESSAGE_BYTES = 1 << 16
_EACH = 512
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


def tensor(operand: dict[str, Any], base: int, flat: Any, device: str = "cpu") -> torch.Tensor:
    """An operand of the set at address `base`. `flat(address, size)`: (size,) uint8 over that memory."""
    dtype, shape, strides = getattr(torch, operand["dtype"]), operand["shape"], operand.get("strides")
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype, device=device)
    if strides is not None:  # from the first to behind the last element, gaps included
        count = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    values: torch.Tensor = flat(base + operand["offset"], count * dtype.itemsize).view(dtype)
    return values.reshape(shape) if strides is None else values.as_strided(shape, strides)


def operand_at(operand: dict[str, Any], base: int, flat: Any, device: str = "cpu") -> torch.Tensor:
    """As tensor(), and a CUDA tensor on the emulated GPU, whose memory is the host's."""
    made = tensor(operand, base, flat, device)
    return torch.ops.liftbench_emulated.cuda(made) if EMULATED else made


def at(address: int, size: int) -> torch.Tensor:
    """(size,) uint8 over this process's memory, without a copy."""
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)


class Signature:
    def __init__(self, plan: dict[str, Any]) -> None:
        operands = plan["operands"]
        self.names = [o["name"] for o in operands]
        self.by_name = [i for i, o in enumerate(operands) if o.get("keyword")]
        self.scalars = plan["scalars"]
        self.writes = [i for i, o in enumerate(operands) if o["role"] != "in"]
        self.reads = [i for i, o in enumerate(operands) if o["role"] != "out"]

    def arguments(self, kind: str, operands: list[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named ones, of a subject of that kind."""
        if kind == "reference":
            return [{**{self.names[i]: operands[i] for i in self.reads}, **self.scalars}], {}
        if not self.by_name:
            return operands, self.scalars
        named = {self.names[i]: operands[i] for i in self.by_name}
        return operands[: self.by_name[0]], {**named, **self.scalars}


class Pool(Signature):
    """A range of addresses, empty unless an arena is mapped there."""

    resident = False
    """The memory of all sets stays mapped."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.size = plan["set_bytes"] * plan["sets"]
        self.address = _map(None, self.size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1)
        self.operands = [
            [operand_at(o, self.address + index * plan["set_bytes"], at) for o in plan["operands"]]
            for index in range(plan["sets"])
        ]
        super().__init__(plan)
        self._prepared: dict[tuple[str, int], tuple[list[Any], dict[str, Any]]] = {}

    def prepared(self, kind: str, index: int) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a set: whatever is called finds them made, so that a set costs all the same."""
        if (kind, index) not in self._prepared:
            self._prepared[kind, index] = self.arguments(kind, self.operands[index])
        return self._prepared[kind, index]

    def measure(self, subject: Subject, message: dict[str, Any]) -> dict[str, Any]:
        subject.aside_ns, durations = 0, []
        for _ in range(message["rounds"]):
            for index in range(message["sets"]):
                durations.append(subject.run(self, index))
        answer = {"calls": len(durations), "total_ns": sum(durations), "ns": durations[:_EACH]}
        return {**answer, "aside_ns": subject.aside_ns}

    def show(self, descriptor: int, message: dict[str, Any]) -> None:
        flags = mmap.MAP_SHARED | _MAP_FIXED | _MAP_POPULATE
        _map(self.address, message["size"], mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor)

    def hide(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
        _map(self.address, self.size, 0, flags, -1)

    def release(self) -> None:
        """Release the addresses: our own worker serves thousands of plans."""
        self.operands.clear()
        self._prepared.clear()
        _libc.munmap(self.address, self.size)


class Subject:
    """What is called: a project's function, a reference, or the null project."""

    operators = 0
    aside_ns = 0
    loads: Any = None
    function: Any = None

    def load(self, message: dict[str, Any]) -> None:
        self.kind = message["kind"]
        if self.kind == "null":
            self.function = _nothing
            return
        package = Path(message["path"]).resolve()
        locations = [str(package.parent)] if self.kind == "project" else None
        if self.kind == "project":
            self.loads = companion("library_loads").Loads(package.parent)
        spec = importlib.util.spec_from_file_location(
            message["module"], package, submodule_search_locations=locations
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{package} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[message["module"]] = module
        spec.loader.exec_module(module)
        self.function = getattr(module, message["function"])
        if message.get("compiled"):
            self.function = torch.compile(self.function, dynamic=False)
        if not callable(self.function):
            raise AttributeError(f"{message['function']} is not callable")
        if message.get("namespace"):
            prefix = message["namespace"] + "::"
            self.operators = sum(name.startswith(prefix) for name in torch._C._dispatch_get_all_op_names())

    def run(self, pool: Pool, index: int) -> int:
        """Call on one set; nanoseconds of the call itself."""
        positional, named = pool.prepared(self.kind, index)
        start = _clock()
        outputs = self.function(*positional, **named)
        end = _clock()
        if self.kind == "reference":
            # It returns tensors; writing them to the judge's buffer and freeing them is not charged to it.
            for i, output in zip(pool.writes, outputs, strict=True):
                pool.operands[index][i].copy_(output)
            del outputs, output
            self.aside_ns += _clock() - end
        return end - start


def _nothing(*operands: torch.Tensor, **scalars: Any) -> None:
    """The null project: called as a real one is, so that it costs the same except for the work."""


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


def _call(channel: socket.socket, subject: Subject, pool: Pool, message: dict[str, Any], fd: int) -> None:
    if not pool.resident:
        pool.show(fd, message)
    try:
        answer = pool.measure(subject, message)
    except Exception:  # noqa: BLE001 - whatever a student's op raises is reported
        # Sent first: a device that failed does not even unmap.
        _send(channel, {"raised": traceback.format_exc(limit=-3)[-4000:]})
        answer = None
    else:
        channel.send(b"D")
        # The judge freezes this process here: unmapping takes a millisecond, in which no thread can be
        # stopped.
        channel.recv(_MESSAGE_BYTES)
    if not pool.resident:
        pool.hide()
    if fd >= 0:
        os.close(fd)
    if answer is not None:
        _send(channel, answer)


def _trace(channel: socket.socket, subject: Subject, pool: Pool, message: dict[str, Any], fd: int) -> None:
    watcher = companion("tracer")
    pool.show(fd, message)
    try:
        if message["watch"] == "copies":
            found = watcher.on_copies(lambda: subject.run(pool, 0), pool.operands[0])
        else:
            found = watcher.trace(lambda: subject.run(pool, 0), message["namespace"], message["device"])
            found.update(subject.loads.account() if subject.loads is not None else {})
    except Exception:  # noqa: BLE001 - as above
        answer = {"raised": traceback.format_exc(limit=-3)[-4000:]}
    else:
        answer = {"trace": found}
    # Sent before unmapping, which may fail: the judge ends a worker that was traced.
    _send(channel, answer)
    pool.hide()
    if fd >= 0:
        os.close(fd)


def _start(message: dict[str, Any]) -> dict[str, Any]:
    """Start CUDA before any student code is in this process: a failure is then not a student's."""
    try:
        if message["device"] == "cuda":
            torch.zeros(1, device="cuda")
        companion("cuda_driver").Driver()
    except Exception as error:  # noqa: BLE001 - reported, and judged outside
        return {"error": f"{type(error).__name__}: {error}"}
    return {"ok": True}


def _pool(plan: dict[str, Any]) -> Any:
    if plan["transport"] == "memfd":
        return Pool(plan)
    return companion("cuda_calls").DevicePool(plan, Signature(plan), operand_at, at, companion("cuda_driver"))


@functools.cache
def companion(name: str) -> Any:
    """A module beside this file, imported only by the workers that need it."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not beside __main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.send(json.dumps(message).encode())


def _flags() -> dict[str, Any]:
    smallest = sys.float_info.min
    return {
        "default dtype": str(torch.get_default_dtype()),
        "num_threads": torch.get_num_threads(),
        "grad mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "flush_denormal": smallest * 0.5 == 0.0,
        "autocast": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
    }


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    # Large blocks are reused rather than returned to the kernel, so that an op that returns fresh tensors (as
    # references do) does not pay page faults on every call.
    _libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    _libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    _send(channel, {"hello": torch.__version__, "pid": os.getpid(), "flags": _flags()})
    subject, pool = Subject(), None
    while True:
        message, descriptor = _receive(channel)
        if message is None:
            return
        if message["op"] == "start":
            _send(channel, _start(message))
        elif message["op"] == "load":
            try:
                subject.load(message)
            except Exception as error:  # noqa: BLE001 - reported, and judged outside
                where = "function" if isinstance(error, AttributeError) else "import"
                _send(channel, {"error": traceback.format_exc(limit=-3)[-4000:], "where": where})
                continue
            gc.collect()
            gc.disable()
            _send(channel, {"ok": True, "operators": subject.operators})
        elif message["op"] == "plan":
            if pool is not None:
                pool.release()
            pool = _pool(message)
            if descriptor >= 0:
                pool.show(descriptor, {"size": message["set_bytes"] * message["sets"]})
                pool.resident = True
                os.close(descriptor)
            _send(channel, {"ok": True})
        elif message["op"] == "flags":
            _send(channel, {"flags": _flags()})
        elif message["op"] == "trace" and pool is not None:
            _trace(channel, subject, pool, message, descriptor)
        elif pool is not None:
            _call(channel, subject, pool, message, descriptor)


if __name__ == "__main__":
    main()
