"""Calls of projects that work on elements: relu, activation, rotary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tools.community.operands import BF16, F16, F32, F64, Call, Tensor, gpu, normal, poison


def relu(k: Any) -> Iterator[Call]:
    """(rows, columns) float32."""
    for shape in ((1, 1), (3, 100), (2, 5, 1024), (4, 2500)):
        x = normal(*shape)
        yield f"relu {shape}", [k.relu(gpu(x), poison(*shape))], [x.double().relu()], 1


def activation(k: Any) -> Iterator[Call]:
    """Eleven functions of (tokens, d) or (tokens, 2 d)."""
    c = (2 / torch.pi) ** 0.5

    def new(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(c * (x + 0.044715 * x**3)))

    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "gelu_new": new, "gelu_fast": new, "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    }  # fmt: skip
    gates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "silu_and_mul": lambda x, y: F.silu(x) * y, "mul_and_silu": lambda x, y: x * F.silu(y),
        "gelu_and_mul": lambda x, y: F.gelu(x) * y, "fatrelu_and_mul": lambda x, y: F.relu(x) * y,
        "gelu_tanh_and_mul": lambda x, y: F.gelu(x, approximate="tanh") * y,
    }  # fmt: skip
    for dtype in (F32, F16, BF16):
        for tokens, d in ((1, 7), (5, 512), (3, 1100)):
            x, y = normal(tokens, d, dtype=dtype), normal(tokens, d, dtype=dtype)
            for name, f in plain.items():
                got = getattr(k, name)(poison(tokens, d, dtype=dtype), gpu(x))
                yield f"{name} {tokens} x {d} {dtype}", [got], [f(x.double())], 4
            for name, g in gates.items():
                got = getattr(k, name)(poison(tokens, d, dtype=dtype), gpu(torch.cat([x, y], -1)))
                yield f"{name} {tokens} x {d} {dtype}", [got], [g(x.double(), y.double())], 4


def rotary(k: Any) -> Iterator[Call]:
    """Both halves rotated; cos and sin broadcast over heads."""
    for dtype in (F32, F16, BF16):
        for conj in (False, True):
            x1, x2 = (normal(2, 9, 4, 32, dtype=dtype) for _ in "12")
            angle = torch.rand(9, 1, 32, dtype=F64) * 6
            cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
            out1, out2 = (poison(2, 9, 4, 32, dtype=dtype) for _ in "12")
            k.apply_rotary(gpu(x1), gpu(x2), gpu(cos), gpu(sin), out1, out2, conj)
            a, b, c, s = (t.double() for t in (x1, x2, cos, -sin if conj else sin))
            yield f"apply_rotary {dtype} conj={conj}", [out1, out2], [a * c - b * s, a * s + b * c], 2
    q, key = normal(2, 4, 7, 64), normal(2, 2, 7, 64)
    angle = torch.rand(2, 7, 32, dtype=F64).repeat(1, 1, 2)
    got = k.apply_rotary_transformers(gpu(q), gpu(key), gpu(angle.cos().float()), gpu(angle.sin().float()))

    def rotated(x: Tensor) -> Tensor:
        half = torch.cat([-x[..., 32:], x[..., :32]], -1)
        return (x * angle.cos()[:, None] + half * angle.sin()[:, None]).double()

    yield "apply_rotary_transformers", list(got), [rotated(q), rotated(key)], 2
