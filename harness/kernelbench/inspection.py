"""Inspects a problem's shapes and operators on PyTorch's `meta` device, without values.

No tensor of an input's size is allocated. Parameters are, if the constructor needs values.
"""

from __future__ import annotations

import inspect
import keyword
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from harness.kernelbench.adapter import Draws, load_problem, state_of
from harness.kernelbench.problems import ProblemFacts, RowFacts, ScalarFacts, TensorFacts, Unfit

_BATCH_NORMS = ("native_batch_norm", "cudnn_batch_norm", "batch_norm_with_update")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
# Operators that only move elements: neither reductions nor arithmetic.
_MOVES = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select",
    "squeeze", "unsqueeze", "clone", "copy_", "_to_copy", "detach", "alias", "as_strided", "cat",
    "stack", "split", "chunk", "unbind", "empty", "empty_like", "zeros", "ones", "full", "zeros_like",
    "ones_like", "full_like", "arange", "scalar_tensor", "lift_fresh", "fill_", "zero_", "index_select",
    "gather", "flip", "_reshape_alias", "tril", "triu", "new_empty", "new_zeros", "new_ones",
    "new_full", "split_with_sizes", "linspace", "eye",
}  # fmt: skip


class _Operator:
    """Facts of an operator's schema, cached: recurrent networks dispatch a million calls."""

    def __init__(self, func: Any) -> None:
        self.name: str = func._schema.name.partition("::")[2]
        arguments = func._schema.arguments
        self.arguments: list[str] = [a.name for a in arguments]
        self.written: list[str] = [a.name for a in arguments if a.alias_info and a.alias_info.is_write]
        self.draws = torch.Tag.nondeterministic_seeded in func.tags
        self.reduces = torch.Tag.pointwise not in func.tags and self.name not in _MOVES
        self.batch_norm = any(mark in self.name for mark in _BATCH_NORMS)
        self.flops: Callable[..., int] | None = flop_registry.get(func._overloadpacket)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators, writes, work and peak memory of a call."""

    def __init__(self, watched: dict[str, torch.Tensor]) -> None:
        """`watched`: tensors, by name, whose writes are recorded."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {t.untyped_storage()._cdata: name for name, t in watched.items()}
        self.operators: dict[Any, _Operator] = {}
        self._users: dict[int, int] = {}
        self._live = 0
        self.writes: set[str] = set()
        self.batch_statistics = False
        self.flops = 0
        self.peak_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the operator and call it."""
        kwargs = kwargs or {}
        operator = self.operators.get(func)
        if operator is None:
            operator = self.operators[func] = _Operator(func)
        if operator.written or operator.batch_norm:
            self._note_writes(operator, {**dict(zip(operator.arguments, args, strict=False)), **kwargs})
        result = func(*args, **kwargs)
        if operator.flops is not None:
            self.flops += operator.flops(*args, **kwargs, out_val=result)
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._keep(tensor)
        return result

    def _note_writes(self, operator: _Operator, given: dict[str, Any]) -> None:
        written = operator.written
        if operator.batch_norm and given.get("training", given.get("train")):
            # Their schemas do not declare these writes.
            self.batch_statistics = True
            written = [*written, "running_mean", "running_var"]
        for argument in written:
            value = given.get(argument)
            if isinstance(value, torch.Tensor):
                self.writes |= {self._names.get(value.untyped_storage()._cdata, "")} - {""}

    def _keep(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._names:
            return
        if key not in self._users:
            self._users[key] = 0
            self._live += size
            self.peak_bytes = max(self.peak_bytes, self._live)
        self._users[key] += 1
        weakref.finalize(tensor, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._users[key] -= 1
        if self._users[key] == 0:
            del self._users[key]
            self._live -= size


class _Recurrent(TorchFunctionMode):
    """Handles a recurrent layer in one step: on `meta` it would be one operator per time step, which takes a
    minute for the largest."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Shapes and work of a whole layer without dropout and with sequences of one length."""
        if getattr(func, "__name__", "") not in _RECURRENT or not isinstance(args[2], (list, tuple)):
            return func(*args, **(kwargs or {}))
        given, hidden, weights, _, _, dropout, train, both, _ = args
        if dropout and train:
            return func(*args, **(kwargs or {}))
        states = hidden if isinstance(hidden, (list, tuple)) else (hidden,)
        steps = math.prod(given.shape[:-1])
        self._recorder.flops += 2 * steps * sum(w.numel() for w in weights if w.dim() == 2)
        given.new_empty((steps, max(w.shape[0] for w in weights)))  # computed for all steps at once
        out = given.new_empty((*given.shape[:-1], states[0].shape[-1] * (2 if both else 1)))
        return (out, *(state.new_empty(state.shape) for state in states))


def inspect_problem(source: str) -> ProblemFacts:
    """The facts of a problem's source. Executes it. Raises Unfit, or whatever the source raises."""
    problem = load_problem(source, "kernelbench_problem_inspected")
    for wanted in ("Model", "get_inputs", "get_init_inputs"):
        if not callable(getattr(problem, wanted, None)):
            raise Unfit(f"it has no {wanted}")
    with torch.no_grad(), torch.device("meta"):
        values = list(problem.get_inputs())
        init = list(problem.get_init_inputs())
        model = _construct(problem.Model, init)
        names = _input_names(model, len(values))
        inputs, scalars = _split(names, values)
        state = state_of(model)
        watched = {**inputs, **{f"state {name}": tensor for name, tensor in state.items()}}
        with Recorder(watched) as recorder, _Recurrent(recorder):
            outputs = model(*values)
    operators = recorder.operators.values()
    written = {name.removeprefix("state ") for name in recorder.writes if name.startswith("state ")}
    buffers = dict(model.named_buffers())
    results = _results(outputs)
    taken = {*names, *(t.name for t in results)}
    parameters = tuple(
        _tensor(_operand_name(name, taken), tensor, name)
        for name, tensor in state.items()
        if not (name in buffers and name in written)
    )
    reduces = any(operator.reduces for operator in operators)
    facts = ProblemFacts(
        arguments=tuple(names),
        inputs=tuple(_tensor(name, tensor) for name, tensor in inputs.items()),
        scalars=tuple(scalars),
        parameters=parameters,
        outputs=results,
        init=repr(init),
        flops=recorder.flops,
        kind="contraction" if recorder.flops else ("reduction" if reduces else "elementwise"),
        convolves=any("convolution" in operator.name for operator in operators),
        draws=tuple(sorted({operator.name for operator in operators if operator.draws})),
        writes=tuple(sorted((recorder.writes & set(inputs)) | (written - set(buffers)))),
        batch_statistics=recorder.batch_statistics,
        peak_bytes=recorder.peak_bytes,
    )
    return facts if facts.fits_cpu() else facts.model_copy(update={"rows": _row_facts(problem, model, facts)})


class PublicGenerator:
    """Draws from PyTorch's generator: nothing is secret here, and on `meta` there are no values at all."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        return torch.rand(tuple(shape), device=self.device).mul_(high - low).add_(low)

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.randn(tuple(shape), device=self.device)

    def integers(self, shape: Sequence[int], low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, tuple(shape), device=self.device)


def _row_facts(problem: Any, model: torch.nn.Module, facts: ProblemFacts) -> RowFacts | None:
    """Scale the first axis of the first input: in every draw of `get_inputs` that has it, or in one draw."""

    def tried(small: int, *, several: bool) -> RowFacts | None:
        try:
            with torch.no_grad(), torch.device("meta"):
                return _scaled(problem, model, facts, small, several=several)
        except Exception:  # noqa: BLE001 - the problem's code does not accept other sizes
            return None

    shape = facts.inputs[0].shape
    if not shape or shape[0] < 3:
        return None
    for several in (True, False):
        found = tried(2, several=several)
        if found is not None:
            one = tried(1, several=several)
            whatever = {"least": 2, "peak_bytes": found.peak_bytes}
            alike = one is not None and one.model_copy(update=whatever) == found
            # A batch norm refuses one row, and broadcasting accepts one for another reason.
            return found.model_copy(update={"least": 1}) if alike else found
    return None


def _scaled(
    problem: Any, model: torch.nn.Module, facts: ProblemFacts, small: int, *, several: bool
) -> RowFacts | None:
    """What shrinks with the first axis; None if shapes change in another way."""
    rows = facts.inputs[0].shape[0]
    shapes = PublicGenerator("meta")
    with Draws(shapes) as draws:
        problem.get_inputs()
    numbers = [number for number, axis in enumerate(draws.first_axes) if axis == rows]
    numbers = numbers if several else numbers[:1]
    with Draws(shapes, dict.fromkeys(numbers, small)):
        values = list(problem.get_inputs())
    inputs, _ = _split(list(facts.arguments), values)
    with Recorder(inputs) as recorder, _Recurrent(recorder):
        outputs = _results(model(*values))
    before = (*facts.inputs, *facts.outputs)
    after = [tuple(t.shape) for t in inputs.values()] + [t.shape for t in outputs]
    following = [t.name for t, shape in zip(before, after, strict=True) if t.shape != shape]
    expected = [(small, *t.shape[1:]) if t.name in following else t.shape for t in before]
    flops, uneven = divmod(facts.flops - recorder.flops, rows - small)
    other = after != expected or any(t.shape[0] != rows for t in before if t.name in following)
    if other or uneven or flops < 0:
        return None
    names = {t.name for t in facts.inputs}
    return RowFacts(
        rows=rows,
        least=small,
        draws=tuple(numbers),
        inputs=tuple(name for name in following if name in names),
        outputs=tuple(name for name in following if name not in names),
        flops=flops,
        # An algorithm for few rows may need more memory.
        peak_bytes=max(0, -(-(facts.peak_bytes - recorder.peak_bytes) // (rows - small))),
    )


def _construct(cls: Any, init: list[Any]) -> torch.nn.Module:
    """On `meta`, or on the CPU if the constructor needs values."""
    try:
        model = cls(*init)
    except (RuntimeError, NotImplementedError):
        with torch.device("cpu"):
            model = cls(*init).to("meta")
    if not isinstance(model, torch.nn.Module):
        raise Unfit("Model is no nn.Module")
    # A tensor that is neither parameter nor buffer would be no operand, and the same in every call.
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                raise Unfit(f"its module keeps the tensor {f'{path}.{key}'.lstrip('.')} as a plain attribute")
    return model


def _input_names(model: torch.nn.Module, count: int) -> list[str]:
    """Names of forward's arguments; `input_2` for one taken by *args."""
    names = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append("out_" if parameter.name == "out" else parameter.name)
    return (names + [f"input_{index + 1}" for index in range(len(names), count)])[:count]


def _split(names: list[str], values: list[Any]) -> tuple[dict[str, torch.Tensor], list[ScalarFacts]]:
    tensors, scalars = {}, []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, (bool, int, float)):
            scalars.append(ScalarFacts(name=name, value=value))
        else:
            raise Unfit(f"its input {name} is a {type(value).__name__}, neither a tensor nor a number")
    if not tensors:
        raise Unfit("none of its inputs is a tensor")
    return tensors, scalars


def _results(outputs: Any) -> tuple[TensorFacts, ...]:
    several = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    if not several or not all(isinstance(one, torch.Tensor) for one in several):
        kinds = ", ".join(type(one).__name__ for one in several)
        raise Unfit(f"its outputs are no tensors: {kinds}")
    names = ["out"] if len(several) == 1 else [f"out_{index + 1}" for index in range(len(several))]
    return tuple(_tensor(name, one) for name, one in zip(names, several, strict=True))


def _operand_name(state: str, taken: set[str]) -> str:
    """`bn.weight` is `bn__weight`."""
    name = state.replace(".", "__")
    free = name.isidentifier() and not keyword.iskeyword(name) and name not in taken
    return name if free else f"param__{name}"


def _tensor(name: str, tensor: torch.Tensor, state: str | None = None) -> TensorFacts:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorFacts(
        name=name, shape=tuple(tensor.shape), dtype=dtype, itemsize=tensor.dtype.itemsize, state=state
    )
