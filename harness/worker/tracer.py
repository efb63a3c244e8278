"""Runs INSIDE the sandbox, beside __main__.py: watches one call and reports what it dispatched and launched.

Operators are counted by a dispatch mode, which sees into the project's own operators, and by PyTorch's
profiler, on all threads. Neither sees operators that are reached without the dispatcher (at::native, most of
the stable ABI's shims, which show in the symbols of the library), nor a call that switches off both.
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
"""A message has at most 64 KiB, and the report of library_loads.py is in the same one."""


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, namespace: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._prefix = namespace + "::"
        self.counts: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise PyTorch imports its compiler, which takes over 2 s for every trace."""
        return False

    def is_own(self, name: str) -> bool:
        return name.startswith(self._prefix)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count, then continue; inside a project's own operator keep watching."""
        name = func._schema.name
        self.counts[name] += 1
        keywords = kwargs or {}
        if not self.is_own(name):
            return func(*args, **keywords)
        # A mode is off while it handles a call. It is on again for what the project's C++ dispatches; and
        # since a plain call would come straight back here, the backend's kernel is called.
        with self:
            return func.redispatch(_backend(args, keywords), *args, **keywords)


def _backend(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    tensors = [value for value in (*args, *keywords.values()) if isinstance(value, torch.Tensor)]
    on_gpu = bool(tensors) and tensors[0].is_cuda
    return torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA if on_gpu else torch._C.DispatchKey.CPU)


def on_copies(run: Callable[[], Any], operands: list[torch.Tensor]) -> dict[str, Any]:
    """Have `run` work on copies of `operands` (the list that it reads), then copy the results back: for tools
    that watch memory, since in the judge's mapping no access is out of bounds. Raises whatever the project
    raises."""
    shared = list(operands)
    operands[:] = [tensor.clone() for tensor in shared]
    try:
        run()
        for theirs, own in zip(shared, operands, strict=True):
            theirs.copy_(own)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # not on the emulated GPU
            torch.cuda.synchronize()
    finally:
        operands[:] = shared
    return {}


def _profiler(device: str) -> Any:
    """The profiler below `torch.profiler`, which imports the compiler when it starts (1.3 s)."""
    return autograd_profiler.profile(
        use_device="cuda" if device == "cuda" else None,
        use_kineto=True,
        experimental_config=_ExperimentalConfig(profile_all_threads=True),
    )


def _recorded(profiler: Any) -> Counter[str]:
    found = Counter(
        event.name() for event in profiler.kineto_results.events() if event.activity_type() == "cpu_op"
    )
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    return Counter({name: calls for name, calls in found.items() if name in known})


def _either(watch: Watch, recorded: Counter[str]) -> Counter[str]:
    """What either way saw, and how often. What the mode handles the profiler records twice, but a project's
    own operator only once: a redispatch is not recorded."""
    found: Counter[str] = Counter()
    for name in sorted(watch.counts.keys() | recorded.keys()):
        seen = watch.counts[name]
        found[name] = max(seen, recorded[name] - (0 if watch.is_own(name) else seen))
    return found


def _kernels(profiler: Any) -> list[list[Any]]:
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


def _fitting(rows: list[list[Any]], most_bytes: int) -> list[list[Any]]:
    kept, size = [], 0
    for row in rows[:_MOST_NAMES]:
        size += len(json.dumps(row)) + 2
        if size > most_bytes:
            break
        kept.append(row)
    return kept


def trace(run: Callable[[], Any], namespace: str, device: str) -> dict[str, Any]:
    """Watch `run`, one call on tensors of `device` (`cpu` or `cuda`): the 100 most frequent operators and the
    100 longest kernels. Raises whatever the project raises."""
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
    return {
        "operators": _fitting(counted, _MOST_BYTES // 2),
        "kernels": _fitting(rows, _MOST_BYTES // 2) if rows else None,
        "note": note,
    }
