"""Calls of projects for images: cv-utils, deformable-detr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tools.community.operands import F16, F32, F64, Call, gpu, normal


def cv_utils(k: Any) -> Iterator[Call]:
    """Connected components of (N, 1, H, W) masks, and greedy non-maximum suppression."""
    for n, h, w, density in ((1, 8, 10, 0.4), (2, 34, 40, 0.5), (1, 64, 64, 0.35)):
        mask = (torch.rand(n, 1, h, w) < density).to(torch.uint8)
        first = (torch.arange(h)[:, None] // 2 * 2 * w + torch.arange(w) // 2 * 2 + 1).double()
        none = torch.full_like(first, 1e9)
        label, before = torch.where(mask > 0, first, none), none
        while not torch.equal(label, before):
            before = label
            label = torch.where(mask > 0, -F.max_pool2d(-label, 3, 1, 1), none)
        label = torch.where(mask > 0, label, 0).long()
        counts = torch.stack([torch.bincount(one.flatten(), minlength=h * w + 1)[one] for one in label])
        got = k.cc_2d(gpu(mask), True)
        yield f"cc_2d {n} x {h} x {w}", list(got), [label, torch.where(label > 0, counts, 0)], 0
    for boxes in (5, 60, 150):
        corner, size, scores = torch.rand(boxes, 2) * 10, torch.rand(boxes, 2) * 5 + 1, torch.rand(boxes)
        dets = torch.cat([corner, corner + size], -1)
        low, high = (
            torch.maximum(dets[:, None, :2], dets[:, :2]),
            torch.minimum(dets[:, None, 2:], dets[:, 2:]),
        )
        both = (high - low).clamp(min=0).prod(-1)
        area = (dets[:, 2:] - dets[:, :2]).prod(-1)
        iou = both / (area[:, None] + area - both)
        order, kept = scores.argsort(descending=True).tolist(), list[int]()
        for one in order:
            if not any(iou[one, other] > 0.3 for other in kept):
                kept.append(one)
        want = [torch.tensor(kept)]
        yield f"generic_nms {boxes} boxes", [k.generic_nms(gpu(dets), gpu(scores), 0.3, False)], want, 0
        yield f"generic_nms {boxes} overlaps", [k.generic_nms(gpu(iou), gpu(scores), 0.3, True)], want, 0


def deformable_detr(k: Any) -> Iterator[Call]:
    """Multi-scale deformable attention and its gradients."""
    for dtype, channels in ((F32, 32), (F64, 16), (F32, 71), (F16, 64)):
        levels = [(6, 5), (3, 4)]
        n, heads, queries, points = 2, 2, 7, 4
        cells = sum(h * w for h, w in levels)
        value = normal(n, cells, heads, channels, dtype=dtype)
        where = torch.rand(n, queries, heads, 2, points, 2).to(dtype)
        weight = torch.rand(n, queries, heads, 2, points).to(dtype)
        grad = normal(n, queries, heads * channels, dtype=dtype)
        leaves = [t.double().requires_grad_() for t in (value, where, weight)]
        total, start = torch.zeros((), dtype=F64), 0
        for level, (h, w) in enumerate(levels):
            image = leaves[0][:, start : start + h * w].permute(0, 2, 3, 1).reshape(n * heads, channels, h, w)
            grid = 2 * leaves[1][:, :, :, level].transpose(1, 2).flatten(0, 1) - 1
            seen = F.grid_sample(image, grid, align_corners=False).reshape(
                n, heads, channels, queries, points
            )
            total = total + torch.einsum("nhcqp,nqhp->nqhc", seen, leaves[2][:, :, :, level])
            start += h * w
        want = total.flatten(2)
        sizes = gpu(torch.tensor(levels)), gpu(torch.tensor([0, levels[0][0] * levels[0][1]]))
        given = [gpu(value), *sizes, gpu(where), gpu(weight)]
        name = f"{channels} channels {dtype}"
        yield f"forward {name}", [k.ms_deform_attn_forward(*given, 64)], [want.detach()], 10
        if dtype is not F16:
            got = k.ms_deform_attn_backward(*given, gpu(grad), 64)
            yield f"backward {name}", list(got), list(torch.autograd.grad(want, leaves, grad.double())), 100
