"""`make_inputs`, `reference` and `truth` of a converted KernelBench problem, over its source.

No value comes from torch's own generators: operators that draw from one are replaced or refused.
"""

from __future__ import annotations

import functools
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# --- filled in by the conversion
_SOURCE = ""
_DIGEST = ""
_ARGUMENTS: tuple[str, ...] = ()
_STATE: dict[str, str] = {}
_ROWS: tuple[int, tuple[int, ...]] | None = None
_WIDE = False
# --- end
# _ARGUMENTS: the operand or scalar that is passed as each argument of `forward`.
# _STATE: operand -> the name in the module's state of the parameter or buffer that it holds.
# _ROWS: (rows of the problem, indices of the draws of get_inputs that have them), or None.
# _WIDE: uniform inputs are drawn from (-3, 3], since on its own values an answer without work passes.

_NAME = f"kernelbench_problem_{_DIGEST[:16]}"


def load_problem(source: str, name: str) -> types.ModuleType:
    """The problem as its own module, so names do not clash and tracebacks show its lines."""
    module = types.ModuleType(name)
    linecache.cache[f"<{name}>"] = (len(source), None, source.splitlines(keepends=True), f"<{name}>")
    sys.modules[name] = module  # torch.compile looks it up
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module


@functools.cache
def _problem() -> types.ModuleType:
    return load_problem(_SOURCE, _NAME)


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes every random operator draw from `generator`, including those of nn.init and constructors."""

    def __init__(self, generator: Any, rows: dict[int, int] | None = None, *, wide: bool = False) -> None:
        """`rows`: index of a draw -> its first axis instead of its own; `wide`: uniform draws are from
        (-3, 3]."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator
        self.first_axes: list[int | None] = []
        """The problem's own first axis of every draw; None for a scalar."""
        self._rows = {} if rows is None else rows
        self._wide = wide

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace random operators. RuntimeError for an unknown one."""
        given = kwargs or {}
        make = _MAKERS.get(func._schema.name)
        if make is not None:
            named = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
            return make(self, {**named, **given})
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError(f"{func._schema.name} draws random numbers in a way that cannot be replaced")
        return func(*args, **given)

    def size(self, given: dict[str, Any]) -> tuple[int, ...]:
        """The shape of what is drawn."""
        size = tuple(given["size"] if "size" in given else given["self"].shape)
        number = len(self.first_axes)
        self.first_axes.append(size[0] if size else None)
        return (self._rows[number], *size[1:]) if number in self._rows else size

    def uniform(self, given: dict[str, Any], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Float32 of the requested shape."""
        drawn: torch.Tensor = self.generator.uniform(self.size(given), low, high)
        return drawn

    def unit(self, given: dict[str, Any]) -> torch.Tensor:
        """The values of `torch.rand`; `wide` for tensors only, since a single number is a factor."""
        wide = self._wide and len(given["size"] if "size" in given else given["self"].shape) > 0
        return self.uniform(given, -3.0, 3.0) if wide else self.uniform(given)

    def normal(self, given: dict[str, Any]) -> torch.Tensor:
        """Float32 of the requested shape."""
        drawn: torch.Tensor = self.generator.normal(self.size(given))
        return drawn


def _as_asked(values: torch.Tensor, given: dict[str, Any], default: torch.dtype) -> torch.Tensor:
    """In the dtype and on the device of the call."""
    like = given.get("self")
    dtype = given.get("dtype") or (like.dtype if like is not None else default)
    device = given.get("device") or (like.device if like is not None else values.device)
    return values.to(dtype=dtype, device=device)


def _in_place(values: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    made: torch.Tensor = given["self"]
    return made.copy_(values)


def _float(given: dict[str, Any], draw: Callable[..., torch.Tensor]) -> torch.Tensor:
    return _as_asked(draw(given), given, torch.get_default_dtype())


def _randint(draws: Draws, given: dict[str, Any]) -> torch.Tensor:
    drawn = draws.generator.integers(draws.size(given), int(given.get("low", 0)), int(given["high"]))
    return _as_asked(drawn, given, torch.int64)


def _randperm(draws: Draws, given: dict[str, Any]) -> torch.Tensor:
    return _as_asked(draws.generator.uniform((given["n"],)).argsort(), given, torch.int64)


def _bernoulli(draws: Draws, given: dict[str, Any]) -> torch.Tensor:
    chance = given.get("p")
    drawn = draws.uniform(given) <= (given["self"] if chance is None else chance)
    return _as_asked(drawn, given, torch.float32)


def _uniform_(draws: Draws, given: dict[str, Any]) -> torch.Tensor:
    return _in_place(draws.uniform(given, float(given.get("from", 0.0)), float(given.get("to", 1.0))), given)


def _normal_(draws: Draws, given: dict[str, Any]) -> torch.Tensor:
    scaled = draws.normal(given) * float(given.get("std", 1.0)) + float(given.get("mean", 0.0))
    return _in_place(scaled, given)


_MAKERS: dict[str, Callable[[Draws, dict[str, Any]], torch.Tensor]] = {
    "aten::rand": lambda draws, given: _float(given, draws.unit),
    "aten::rand_like": lambda draws, given: _float(given, draws.unit),
    "aten::randn": lambda draws, given: _float(given, draws.normal),
    "aten::randn_like": lambda draws, given: _float(given, draws.normal),
    "aten::randint": _randint,
    "aten::randint_like": _randint,
    "aten::randperm": _randperm,
    "aten::bernoulli": _bernoulli,
    "aten::uniform_": _uniform_,
    "aten::normal_": _normal_,
    "aten::bernoulli_": lambda draws, given: _in_place(draws.uniform(given) <= given.get("p", 0.5), given),
    "aten::exponential_": lambda draws, given: _in_place(
        -draws.uniform(given).log() / float(given.get("lambd", 1.0)), given
    ),
}


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def draw(
    generator: Any, dtype: torch.dtype, rows: int | None = None, *, wide: bool = _WIDE
) -> dict[str, torch.Tensor]:
    """All tensor operands: `get_inputs()`, and the state of a new `Model(*get_init_inputs())`.

    `rows`: the first axis of what can be scaled; None: the problem's own.
    """
    problem = _problem()
    numbers = () if rows is None or _ROWS is None else _ROWS[1]
    with torch.no_grad(), torch.device(generator.device):
        with Draws(generator, dict.fromkeys(numbers, rows or 0), wide=wide):
            values = list(problem.get_inputs())
        with Draws(generator):
            state = state_of(problem.Model(*problem.get_init_inputs()))
    made = {n: v for n, v in zip(_ARGUMENTS, values, strict=True) if isinstance(v, torch.Tensor)}
    made |= {operand: state[name].detach() for operand, name in _STATE.items()}
    return {n: v.to(dtype) if v.is_floating_point() else v for n, v in made.items()}


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Fresh inputs and fresh parameters, from the judge's generator."""
    return draw(generator, workload.dtype, workload.dims.get("rows"))


def published_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """The same, from the distribution of `get_inputs`, for KernelBench's own rules."""
    return draw(generator, workload.dtype, workload.dims.get("rows"), wide=False)


class _Bound:
    """A module whose state is replaced for each call by dict assignments: functional_call would take longer
    than some of the timed kernels."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        problem = _problem()
        with torch.device(device):
            self.model: torch.nn.Module = problem.Model(*problem.get_init_inputs())
        self.model.to(dtype=dtype, device=device).requires_grad_(False)
        state = state_of(self.model)
        operand_of = {id(state[name]): operand for operand, name in _STATE.items()}
        # (module dict, key, operand, previous value)
        self.places: list[tuple[dict[str, Any], str, str, Any]] = [
            (holder, key, operand_of[id(tensor)], tensor)
            for module in self.model.modules()
            for holder in (module._parameters, module._buffers)
            for key, tensor in holder.items()
            if id(tensor) in operand_of
        ]

    def __call__(self, inputs: dict[str, Any]) -> Any:
        arguments = tuple(inputs[name] for name in _ARGUMENTS)
        if torch.compiler.is_compiling():
            state = {name: inputs[operand] for operand, name in _STATE.items()}
            return torch.func.functional_call(self.model, state, arguments)
        try:
            for holder, key, operand, _ in self.places:
                holder[key] = inputs[operand]
            return self.model(*arguments)
        finally:
            for holder, key, _, before in self.places:
                holder[key] = before


_bound = functools.cache(_Bound)


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """`Model.forward` on the operands, in training mode as the constructor leaves it."""
    floats = (v for v in inputs.values() if isinstance(v, torch.Tensor) and v.is_floating_point())
    first = next(floats, None)
    key = (torch.float32, torch.device("cpu")) if first is None else (first.dtype, first.device)
    outputs = _bound(*key)(inputs)
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The same in float64, also for tensors that `forward` creates."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return reference(inputs)
    finally:
        torch.set_default_dtype(before)
