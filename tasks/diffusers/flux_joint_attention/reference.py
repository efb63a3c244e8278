"""Joint attention of text and image tokens, as diffusion transformers in PyTorch write it.

Shapes: q_text, k_text, v_text and out_text (batch, text, heads, head_dim); q_image, k_image, v_image and
out_image (batch, image, heads, head_dim), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _joined(inputs: dict[str, Any], name: str) -> torch.Tensor:
    """(batch, heads, text + image, head_dim): text first."""
    return torch.cat((inputs[f"{name}_text"], inputs[f"{name}_image"]), dim=1).transpose(1, 2)


def _parted(inputs: dict[str, Any], out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Text and image of (batch, heads, text + image, head_dim), as the operands lie."""
    text, image = inputs["q_text"].shape[1], inputs["q_image"].shape[1]
    return out.transpose(1, 2).split((text, image), dim=1)


def _usable(x: torch.Tensor) -> torch.Tensor:
    """`x` on a GPU, at least float32 on a CPU.

    PyTorch's fused 16-bit attention ends the process on machines that announce AMX and do not allow it.
    """
    return x if x.is_cuda else x.to(torch.promote_types(x.dtype, torch.float32))


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs."""
    q, k, v = (_usable(_joined(inputs, name)) for name in "qkv")
    out = F.scaled_dot_product_attention(q, k, v, scale=inputs["scale"])
    return _parted(inputs, out.to(inputs["q_text"].dtype))


def _attend(inputs: dict[str, Any], v: torch.Tensor) -> torch.Tensor:
    """softmax(scale * q k^T) v, one head at a time: all scores would need gigabytes."""
    q, k, out = _joined(inputs, "q"), _joined(inputs, "k"), torch.empty_like(v)
    for b in range(v.shape[0]):
        for h in range(v.shape[1]):
            scores = (q[b, h] @ k[b, h].mT).mul_(inputs["scale"])
            out[b, h] = scores.softmax(dim=-1) @ v[b, h]
    return out


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in float64."""
    return _parted(inputs, _attend(inputs, _joined(inputs, "v")))


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The average of |v| with the probabilities as weights: rounding them changes a share of this, and in
    float16, below its smallest normal number, a share of |v|."""
    v = _joined(inputs, "v").abs()
    return _parted(inputs, _attend(inputs, v) + v.max() / 2**14)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Queries of very different sharpness: some rows average many keys, others pick one."""
    d = workload.dims
    operands = {}
    for part in ("text", "image"):
        shape = (d["batch"], d[part], d["heads"], d["head_dim"])
        # Scores up to 150, where exp without the maximum overflows: standard deviations from 0.25 to 45.
        sharpness = torch.exp2(generator.uniform((*shape[:3], 1), -2.0, 5.5))
        operands[f"q_{part}"] = sharpness * generator.normal(shape)
        operands[f"k_{part}"] = generator.normal(shape)
        operands[f"v_{part}"] = generator.normal(shape)
    return {name: value.to(workload.dtype) for name, value in operands.items()}
