"""The rules by which a project is graded, as a section of the prompt.

The section states every rule that a task declares. For tasks that declare none its text never changes, so
recorded prompts stay valid.
"""

from __future__ import annotations

import math

from harness.records import Target, Task
from harness.records.task import PROMISED, Range
from harness.suite.tolerance import REFERENCE_ERROR_FACTOR, TILE, TILE_FRACTION, Tolerance, tolerance

# Only for tasks that forbid library calls.
_OWN_WORK = """

The computation must be your own code. The built library may call PyTorch to allocate, view, copy, cast \
and fill tensors, but no PyTorch operator that computes, neither directly nor by name, no library such as \
cuBLAS, cuDNN or MKL, and no function that loads code (dlopen, dlsym): a project whose library does is not \
loaded."""

_SHAPES = {
    "transposed": "an operand that is read only may be transposed (its last two axes swapped in memory)",
    "stepped": "an operand that is read only may hold every second element of a larger tensor",
    "expanded": "an operand that is read only may have stride 0 along its first axis",
    "misaligned": "first elements may be aligned to no more than their own size",
}
_VALUES = {
    "tiny": "very small",
    "large": "very large",
    "offset": "far from zero",
    "outlier": "a single huge one in a row",
    "constant": "all equal in a row",
    "sorted": "sorted",
    "reversed": "sorted",
    "ties": "repeated",
    "nan": "NaN (which must reach exactly the outputs that it reaches in PyTorch)",
    "inf": "plus and minus infinity",
    "denormal": "denormal",
    "negative_zero": "-0.0",
}
_GLOBALS = (
    "A call leaves torch's global settings (default dtype, number of threads, grad mode, precision and "
    "determinism switches) as they are."
)


def _memory(task: Task) -> str:
    """How operands lie in memory."""
    others = [_SHAPES[layout] for layout in dict.fromkeys(task.layouts) if layout != "contiguous"]
    if not others:
        return "all operands are contiguous and 256-byte aligned, pointers rotate"
    contiguous = "operands are contiguous and 256-byte aligned on most calls, but "
    return contiguous + "; ".join(others) + "; what you write is contiguous; pointers rotate"


def _extent(name: str, extent: Range) -> str:
    low, high, *step = extent
    return f"{name} from {low} to {high}" + (f" in steps of {step[0]}" if step and step[0] > 1 else "")


def _drawn(task: Task) -> str:
    """Shapes and values that are drawn at grading time."""
    sentences = []
    if task.hidden is not None:
        sizes = ", ".join(_extent(name, extent) for name, extent in task.hidden.dims.items())
        sentences.append(f"It is also called with shapes that are drawn when it is judged: {sizes}.")
        kinds = dict.fromkeys(_VALUES[kind] for kind in task.values if kind in _VALUES)
        if kinds:
            sentences.append(f"Some calls have values that are {', '.join(kinds)}.")
        sentences.append(_GLOBALS)
    elif promised := [_VALUES[kind] for kind in task.values if kind in PROMISED]:
        sentences.append(f"Some calls have values that are {', '.join(promised)}.")
    if task.exact:
        sentences.append("On inputs of -1, 0 and 1 the result must be exact.")
    return "\n\n" + " ".join(sentences) if sentences else ""


def _limits(task: Task, rules: dict[str, Tolerance]) -> str:
    """Caps of the tolerance."""
    capped = [f"{rule.cap:g} for {dtype}" for dtype, rule in rules.items() if math.isfinite(rule.cap)]
    if task.hidden is None or not capped:
        return ""
    return f" (f times that never exceeds {', '.join(capped)})"


def _counts(task: Task, rules: dict[str, Tolerance]) -> str:
    """How many elements have to be right, and the precision of float32 products."""
    loose = [rule for rule in rules.values() if rule.matched < 1]
    words = "Every element counts."
    if loose:
        words = (
            f"With 8-bit inputs {loose[0].matched:.0%} of the elements must be within that, all within "
            f"{loose[0].most:g} times that, and no {TILE} x {TILE} tile may have more than "
            f"{TILE_FRACTION:.0%} beyond it."
        )
    return words + (" float32 products may be rounded to TF32." if task.precision == "tf32" else "")


def _repeatable(task: Task) -> str:
    if task.nondeterminism == 0:
        return "a result that changes from call to call on equal inputs"
    bound = f"{task.nondeterminism:g} * (|value| + root mean square of its row)"
    return f"a result that changes by more than {bound} from call to call on equal inputs"


def grading_rules(task: Task, target: Target) -> str:
    """The section "How it is judged" of a prompt, in Markdown."""
    dtypes = task.dtypes[target]
    rules = {d: tolerance(task, task.outputs[0], d) for d in dtypes}
    factors = ", ".join(f"{rule.f:g} for {d}" for d, rule in rules.items())
    own_scale = ", or what the description above gives" if task.tolerance == "contraction" else ""
    exact = (
        "Outputs must be exact."
        if task.tolerance == "exact"
        else (
            f"With `truth` computed in float64 from the same inputs and `s` the root mean square of the "
            f"truth's row (last axis){own_scale}, an error may be "
            f"up to f * (|truth| + s), f = {factors}, or up to {REFERENCE_ERROR_FACTOR:g} times the error of "
            f"PyTorch's own op in that dtype if that is more{_limits(task, rules)}."
        )
    )
    own = _OWN_WORK if task.library_calls == "forbid" else ""
    where = "with one thread on both sides" if target == "cpu" else "on the current CUDA stream"
    return f"""\
## How it is judged

It is built, then called on buffers that the judge owns: {_memory(task)} in a pool, \
and values are drawn afresh for every call. Return nothing; write \
`{task.outputs[0].name}`. Writing to an operand that is read only, outside an operand, or after the call \
has returned is a failure, and so is {_repeatable(task)}.{own}{_drawn(task)}

{exact} {_counts(task, rules)}

If it is correct, its speed is measured against the PyTorch reference, {where}. Nothing may be cached \
between calls that depends on the operands' values."""
