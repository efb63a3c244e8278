"""Runs INSIDE the sandbox, beside __main__.py: watches one call and says what it dispatched and launched.

What it says fits one message, however much a call does.

Two witnesses count operators, since either can be kept out of a call: a dispatch mode, which sees into the
project's own operators (any Python may switch modes off), and PyTorch's profiler, on all threads.
What neither can see: operators that are reached without PyTorch's dispatcher (at::native, at::cpu and most
of the stable ABI's shims: the symbols of the library tell of those), and a call that switches off both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.autograd import profiler as autograd_profiler
from torch.utils._python_dispatch import TorchDispatchMode

_MOST_NAMES = 100
_NAME_CHARS = 300
_MOST_BYTES = 56_000
"""The worker's messages are at most 64 KiB, and worker/loads.py has its say in the same one."""
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is dispatched, inside the project's own operators too."""

    def __init__(self, namespace: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._prefix = namespace + "::"
        self.counts: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch would import its compiler to keep it out of here: over 2 s for every trace."""
        return False

    def is_own(self, name: str) -> bool:
        """Whether the project registers it."""
        return name.startswith(self._prefix)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count; then go on, and in an operator of the project's own keep watching."""
        name = func._schema.name
        self.counts[name] += 1
        keywords = kwargs or {}
        if not self.is_own(name):
            return func(*args, **keywords)
        # A mode is off while it handles a call. On again for what the project's C++ dispatches; and since
        # the plain call would come straight back here, the kernel of the backend is named.
        with self:
            return func.redispatch(_backend(args, keywords), *args, **keywords)


def _backend(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    tensors = [value for value in (*args, *keywords.values()) if isinstance(value, torch.Tensor)]
    kind = tensors[0].device.type if tensors else "cpu"
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _BACKENDS.get(kind, "CPU")))


def on_copies(run: Callable[[], Any], operands: list[torch.Tensor]) -> dict[str, Any]:
    """Have `run` work on copies of `operands` (the list that it reads), then write the results back.

    For a tool that watches memory: the judge's buffers lie in one mapping that another process wrote, where
    no access is out of bounds and nothing is known to be initialised. Raises whatever the project raises.
    """
    shared = list(operands)
    operands[:] = [tensor.clone() for tensor in shared]
    try:
        run()
        for theirs, own in zip(shared, operands, strict=True):
            theirs.copy_(own)
        if operands[0].is_cuda:
            torch.cuda.synchronize()
    finally:
        operands[:] = shared
    return {}


def _profiler(device: str) -> Any:
    """PyTorch's own, below `torch.profiler`: that one imports the compiler when it starts (1.3 s)."""
    return autograd_profiler.profile(
        use_device="cuda" if device == "cuda" else None,
        use_kineto=True,
        experimental_config=_ExperimentalConfig(profile_all_threads=True),
    )


def _recorded(profiler: Any) -> Counter[str]:
    """How often the profiler saw each operator; what else a program records under names of its own
    choice is left out."""
    found = Counter(
        event.name() for event in profiler.kineto_results.events() if event.activity_type() == "cpu_op"
    )
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    return Counter({name: calls for name, calls in found.items() if name in known})


def _either(watch: Watch, recorded: Counter[str]) -> Counter[str]:
    """What either witness saw, and how often. What the mode handles the profiler records twice, going in and
    going on; but an operator of the project's goes on by a redispatch, which is not recorded."""
    found: Counter[str] = Counter()
    for name in sorted(watch.counts.keys() | recorded.keys()):
        seen = watch.counts[name]
        found[name] = max(seen, recorded[name] - (0 if watch.is_own(name) else seen))
    return found


def _kernels(profiler: Any) -> list[list[Any]]:
    """[name, launches, nanoseconds, is a copy or fill] of what ran on the device, the longest first."""
    found: dict[tuple[str, bool], list[int]] = {}
    for event in profiler.kineto_results.events():
        kind = event.activity_type()
        if kind not in ("kernel", "concurrent_kernel", "gpu_memcpy", "gpu_memset"):
            continue
        entry = found.setdefault((event.name()[:_NAME_CHARS], kind.startswith("gpu_")), [0, 0])
        entry[0] += 1
        entry[1] += event.duration_ns()
    ordered = sorted(found.items(), key=lambda item: -item[1][1])
    return [[name, *figures, copies] for (name, copies), figures in ordered]


def _fitting(rows: list[list[Any]], most_bytes: int) -> tuple[list[list[Any]], int]:
    """The first rows that fit, and how many are left out."""
    kept, size = [], 0
    for row in rows[:_MOST_NAMES]:
        size += len(json.dumps(row)) + 2
        if size > most_bytes:
            break
        kept.append(row)
    return kept, len(rows) - len(kept)


def trace(run: Callable[[], Any], namespace: str, device: str) -> dict[str, Any]:
    """Watch `run`, one call of the project's function on tensors of `device` (`cpu` or `cuda`).

    Returns {operators: [[name, calls]], operators_left_out, kernels: [[name, launches, ns, copy]] or None,
    kernels_left_out, note}. Raises whatever the project raises.
    """
    watch, note = Watch(namespace), None
    with _profiler(device) as profiler:
        with watch:
            run()
        if device == "cuda":
            torch.cuda.synchronize()
    rows = _kernels(profiler) if device == "cuda" else []
    if device == "cuda" and not rows:
        note = "the profiler (CUPTI) reported no device activity"
    seen = _either(watch, _recorded(profiler))
    counted = [[name[:_NAME_CHARS], calls] for name, calls in seen.most_common()]
    operators, left = _fitting(counted, _MOST_BYTES // 2)
    kernels, missing = _fitting(rows, _MOST_BYTES // 2)
    return {
        "operators": operators,
        "operators_left_out": left,
        "kernels": kernels if rows else None,
        "kernels_left_out": missing,
        "note": note,
    }
