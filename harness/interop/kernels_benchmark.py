"""A task as a script for `kernels benchmark`, which times a project beside the task's reference.

The script imports nothing of liftbench: it is the task's reference.py and what stands below.
"""

from __future__ import annotations

from typing import Any, Final

from harness.errors import UsageError
from harness.expressions import evaluate
from harness.records import Target, Task
from harness.suite.catalogue import LoadedTask

_HEAD: Final = '''

# Written by `liftbench export kernels` for {task} (version {version}), target {target}.
# `kernels benchmark` times the reference once and with the same inputs at every call: its figures are no
# grade. `liftbench grade . --task {task} --target {target}` is one.
from types import SimpleNamespace

from kernels.benchmark import Benchmark

OPERANDS = {operands}
"""Name, role, dtype (None: the workload's) and whether it is passed by name; in the order of the call."""
WORKLOADS = {workloads}
"""By method: dims, scalars, dtype, and shapes of the `out` operands."""


class Draw:
    """What make_inputs draws from; `seed` below makes it the same every time."""

    def __init__(self, device):
        self.device = device

    def normal(self, shape):
        return torch.randn(tuple(shape), device=self.device)

    def uniform(self, shape, low=0.0, high=1.0):
        return torch.rand(tuple(shape), device=self.device) * (high - low) + low

    def integers(self, shape, low, high):
        return torch.randint(low, high, tuple(shape), device=self.device)


class Answer:
    """All outputs of a call. `torch.allclose` of two answers compares each output in units of its largest
    value, integers exactly."""

    def __init__(self, outputs):
        self.outputs = tuple(outputs)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is not torch.allclose:
            return NotImplemented
        return all(map(cls.close, args[0].outputs, args[1].outputs))

    @staticmethod
    def close(ours, theirs):
        if not theirs.is_floating_point():
            return torch.equal(ours, theirs)
        ours, theirs = ours.double(), theirs.double()
        sizes = theirs.abs().nan_to_num(0.0, posinf=0.0)
        unit = float(sizes.max()) if sizes.numel() else 0.0
        return torch.allclose(ours, theirs, rtol=0.0, atol={atol} * unit, equal_nan=True)


class {name}(Benchmark):
    seed = 1

    def prepare(self, method):
        self.workload = SimpleNamespace(name=method, **WORKLOADS[method])
        self.workload.dtype = getattr(torch, self.workload.dtype)
        drawn = make_inputs(self.workload, Draw(self.device))
        self.inputs = {{name: value.contiguous().to(self.device) for name, value in drawn.items()}}
        self.positional, self.named, self.written = [], dict(self.workload.scalars), []
        for name, role, dtype, by_name in OPERANDS:
            if role == "out":
                dtype = self.workload.dtype if dtype is None else getattr(torch, dtype)
                value = torch.empty(self.workload.outs[name], dtype=dtype, device=self.device)
            else:  # the call changes what it also writes
                value = self.inputs[name] if role == "in" else self.inputs[name].clone()
            if by_name:
                self.named[name] = value
            else:
                self.positional.append(value)
            if role != "in":
                self.written.append(value)
        self.out = Answer(self.written)

    def call(self):
        self.kernel.{op}(*self.positional, **self.named)

    def refer(self):
        # A reference that works in place gets copies, and its time includes the copying.
        written = [name for name, role, *_ in OPERANDS if role in ("inout", "partial")]
        copies = {{name: self.inputs[name].clone() for name in written}}
        return Answer(reference({{**self.inputs, **copies, **self.workload.scalars}}))
'''
_METHODS: Final = """
    def setup_{method}(self):
        self.prepare("{method}")

    def benchmark_{method}(self):
        self.call()

    def verify_{method}(self):
        return self.refer()
"""
_ATOL: Final = 1e-2
"""That of `kernels benchmark`."""


def _table(rows: dict[str, dict[str, Any]]) -> str:
    return "{\n" + "".join(f"    {name!r}: {row!r},\n" for name, row in rows.items()) + "}"


def script_name(task: Task) -> str:
    """Where the script is in a project."""
    return f"benchmarks/benchmark_{task.name}.py"


def benchmark_script(loaded: LoadedTask, target: Target) -> str:
    """The script, with a method per timed workload and dtype. Raises UsageError for a target it has not."""
    task = loaded.task
    if target not in task.dtypes:
        raise UsageError(f"{task.id} is not for {target}")
    workloads: dict[str, dict[str, Any]] = {}
    for workload in (one for one in task.workloads_for(target) if one.timed):
        outs = {
            o.name: tuple(evaluate(axis, workload.dims) for axis in o.shape)
            for o in task.operands
            if o.role == "out"
        }
        for dtype in task.dtypes[target]:
            given = {"dims": workload.dims, "scalars": workload.scalars, "dtype": dtype, "outs": outs}
            workloads[f"{workload.name}_{dtype}"] = given
    operands = [(o.name, o.role, None if o.dtype == "$dtype" else o.dtype, o.keyword) for o in task.operands]
    head = _HEAD.format(
        task=task.id,
        version=task.version,
        target=target,
        operands=repr(operands),
        workloads=_table(workloads),
        name="".join(word.capitalize() for word in task.name.split("_")),
        op=task.op,
        atol=_ATOL,
    )
    return loaded.reference_path.read_text() + head + "".join(_METHODS.format(method=m) for m in workloads)
