"""The package around a ModelNew file: `forward(out, *inputs, **params)`.

Copied with the task's names filled in, next to `submission.py` (the student's file) and `problem.py` (for
`get_init_inputs`). It runs in the worker beside the student's code, untrusted, with torch and stdlib only.

Parameters are fresh for every call. They are put into the module by name, or in order if names differ but
count and shapes agree.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# --- filled in by the conversion: forward's arguments in order, operand -> name in the state, outputs
_ARGUMENTS: tuple[str, ...] = ()
_STATE: dict[str, str] = {}
_OUTPUTS = 1
# --- end

_INLINE = Path(__file__).parent / "_inline"


def _with_libraries(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch's `load_inline` or `load` that returns a library compiled when the package was built."""

    def load(name: str, *words: Any, **named: Any) -> Any:
        path = _INLINE / f"{name}.so"
        if not path.is_file():
            return original(name, *words, **named)
        if not named.get("is_python_module", True):
            torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
            return str(path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def _use_libraries() -> None:
    extension: Any = importlib.import_module("torch.utils.cpp_extension")
    extension.load_inline = _with_libraries(extension.load_inline)
    extension.load = _with_libraries(extension.load)


if _INLINE.is_dir():
    _use_libraries()

# Only after load_inline is replaced: importing the student's file compiles.
problem: Any = importlib.import_module(".problem", __name__)
submission: Any = importlib.import_module(".submission", __name__)

Place = tuple[dict[str, Any], str, str, torch.Tensor]


def _places(model: torch.nn.Module) -> list[Place]:
    """(module dict, key, name in the state, tensor) of every parameter and buffer, each once."""
    found: list[Place] = []
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for holder in holders:
            for key, tensor in holder.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    found.append((holder, key, f"{prefix}.{key}" if prefix else key, tensor))
    return found


class _Bound:
    """A module and the places of its operands."""

    def __init__(self, params: dict[str, torch.Tensor], device: torch.device) -> None:
        self.model: torch.nn.Module = submission.ModelNew(*problem.get_init_inputs())
        self.model.to(device).requires_grad_(False)
        self.places = self._match(params)

    def _match(self, params: dict[str, torch.Tensor]) -> list[tuple[dict[str, Any], str, str]]:
        places = _places(self.model)
        by_name = {name: (holder, key) for holder, key, name, _ in places}
        if all(name in by_name for name in _STATE.values()):
            return [(*by_name[name], operand) for operand, name in _STATE.items()]
        shapes = [tuple(tensor.shape) for *_, tensor in places]
        if shapes == [tuple(params[operand].shape) for operand in _STATE]:
            return [(*place[:2], operand) for place, operand in zip(places, _STATE, strict=True)]
        missing = sorted(set(_STATE.values()) - set(by_name))
        raise RuntimeError(
            f"ModelNew has no parameter or buffer {', '.join(missing)}; it has "
            f"{', '.join(by_name) or 'none'}. Weights are passed by name, or in order where all shapes agree"
        )


_bound: dict[torch.device, _Bound] = {}


def forward(*operands: torch.Tensor, **named: Any) -> None:
    """Write ModelNew's result to the outputs, which are the first operands."""
    outputs, inputs = operands[:_OUTPUTS], iter(operands[_OUTPUTS:])
    params = {operand: named[operand] for operand in _STATE}
    arguments = [named[name] if name in named else next(inputs) for name in _ARGUMENTS]
    device = outputs[0].device
    if device not in _bound:
        _bound[device] = _Bound(params, device)
    bound = _bound[device]
    for holder, key, operand in bound.places:
        holder[key] = params[operand]
    with torch.no_grad():
        result = bound.model(*arguments)
    for out, value in zip(outputs, (result,) if isinstance(result, torch.Tensor) else result, strict=True):
        out.copy_(value)
