"""Calls of projects that work along a sequence: rwkv, causal-conv1d."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tools.community.operands import BF16, F32, F64, Call, Tensor, gpu, normal, poison


def rwkv(k: Any) -> Iterator[Call]:
    """WKV of (B, T, C), with and without a carried state, and its gradients."""

    def wkv(operands: list[Tensor], state: list[Tensor]) -> Tensor:
        (w, u, key, v), (a, b, p) = operands, state
        out = []
        for t in range(key.shape[1]):
            kt, vt = key[:, t], v[:, t]
            top = torch.maximum(p, u + kt)
            e1, e2 = torch.exp(p - top), torch.exp(u + kt - top)
            out.append((e1 * a + e2 * vt) / (e1 * b + e2))
            top = torch.maximum(w + p, kt)
            e1, e2 = torch.exp(w + p - top), torch.exp(kt - top)
            a, b, p = e1 * a + e2 * vt, e1 * b + e2, top
        state[:] = a, b, p
        return torch.stack(out, 1)

    for dtype, suffix in ((F32, ""), (BF16, "_bf16")):
        for b, t, c in ((1, 1, 32), (2, 17, 64), (3, 40, 32)):
            w, u = -torch.rand(c) * 2 - 0.1, normal(c, dtype=dtype)
            key, v, gy = (normal(b, t, c, dtype=dtype) for _ in "kvg")
            given = [gpu(x) for x in (w, u, key, v)]
            y = poison(b, t, c, dtype=dtype)
            getattr(k, f"forward{suffix}")(*given, y)
            leaves = [x.double().expand(b, c).clone() for x in (w, u)] + [key.double(), v.double()]
            for leaf in leaves:
                leaf.requires_grad_()
            zero = torch.zeros(b, c, dtype=F64)
            want = wkv(leaves, [zero, zero, zero - 1e38])
            yield f"forward{suffix} {b} x {t} x {c}", [y], [want.detach()], 4
            grads = [poison(b, c, dtype=dtype) for _ in "wu"] + [poison(b, t, c, dtype=dtype) for _ in "kv"]
            getattr(k, f"backward{suffix}")(*given, y, gpu(gy), *grads)
            wanted = list(torch.autograd.grad(want, leaves, gy.double(), materialize_grads=True))
            wanted[0] *= w.double()
            yield f"backward{suffix} {b} x {t} x {c}", grads, wanted, 20
            s = torch.rand(b, c, 3)
            state = [s[..., i].double() for i in range(3)]
            after, y = gpu(s.clone()), poison(b, t, c, dtype=dtype)
            getattr(k, f"forward_with_state{suffix}")(*given, y, after)
            want = wkv([leaf.detach() for leaf in leaves], state)
            yield f"forward_with_state{suffix} {b} x {t} x {c}", [y, after], [want, torch.stack(state, -1)], 4


def causal_conv1d(k: Any) -> Iterator[Call]:
    """Depthwise causal convolution of (batch, dim, length): forward, backward, one step of decoding."""
    for dtype in (F32, BF16):
        for width, length, last, silu in (
            (4, 70, False, True),
            (2, 9, False, False),
            (3, 70, True, True),
            (4, 128, True, False),
        ):
            x, weight, bias = normal(2, 64, length, dtype=dtype), normal(64, width), normal(64)
            dout = normal(2, 64, length, dtype=dtype)

            def laid(t: Tensor, last: bool = last) -> Tensor:
                """Channels last where asked."""
                return gpu(t.transpose(1, 2).contiguous()).transpose(1, 2) if last else gpu(t)

            name = f"width {width}, length {length}, {dtype}, channels last: {last}, silu: {silu}"
            gx, gw, gb = laid(x), gpu(weight), gpu(bias)
            leaves = [t.double().requires_grad_() for t in (x, weight, bias)]
            want = F.conv1d(leaves[0], leaves[1][:, None], leaves[2], padding=width - 1, groups=64)[
                ..., :length
            ]
            want = F.silu(want) if silu else want
            got = k.causal_conv1d_fn(gx, gw, gb, activation="silu" if silu else None)
            yield f"forward {name}", [got], [want.detach()], 4
            back = sys.modules[f"{k.__name__}.cpp_functions"].causal_conv1d_bwd_function
            dx, dw, db, _ = back(gx, gw, gb, laid(dout), None, None, None, None, False, silu)
            yield f"backward {name}", [dx, dw, db], list(torch.autograd.grad(want, leaves, dout.double())), 60
            step, state = normal(2, 64, dtype=dtype), normal(2, 64, width - 1, dtype=dtype)
            window = torch.cat([state, step[..., None]], -1)
            moved = gpu(state.clone())
            got = k.causal_conv1d_update(gpu(step), moved, gw, gb)
            want = (window.double() * weight.double()).sum(-1) + bias.double()
            yield f"update {name}", [got, moved], [want, window[..., 1:].double()], 4
