"""Calls of projects for sparse attention: mra, yoso."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tools.community.operands import F64, Call, Tensor, gpu, normal


def mra(k: Any) -> Iterator[Call]:
    """Block-sparse products with blocks of 32; their number must be a multiple of 8."""
    for batch, rows, columns, dim, blocks in ((1, 2, 4, 64, 8), (2, 4, 5, 128, 16)):
        pick = torch.stack([torch.randperm(rows * columns)[:blocks] for _ in range(batch)])
        indices = gpu(pick.int())
        row, column = pick // columns, pick % columns
        left, right = normal(batch, rows, dim, 32), normal(batch, columns, dim, 32)
        sparse, vector = normal(batch, blocks, 32, 32), normal(batch, rows, 32)
        batches = torch.arange(batch)[:, None]
        a, b = left.double()[batches, row], right.double()[batches, column]
        shape = f"{batch} x {rows} x {columns}, dim {dim}"
        got = k.mm_to_sparse(gpu(left), gpu(right), indices)
        yield f"mm_to_sparse {shape}", [got], [torch.einsum("zndj,zndi->znji", b, a)], 20

        def summed(values: Tensor, row: Tensor = row, batch: int = batch, rows: int = rows) -> Tensor:
            out = torch.zeros(batch, rows, *values.shape[2:], dtype=F64)
            return out.index_put_((torch.arange(batch)[:, None].expand_as(row), row), values, accumulate=True)

        want = summed(torch.einsum("zndm,znmj->zndj", b, sparse.double()))
        yield (
            f"sparse_dense_mm {shape}",
            [k.sparse_dense_mm(gpu(sparse), indices, gpu(right), rows)],
            [want],
            20,
        )
        got = k.reduce_sum(gpu(sparse), indices, rows, columns)
        yield f"reduce_sum {shape}", [got], [summed(sparse.double().sum(2))], 4
        want = vector.double()[batches, row][:, :, None].expand(-1, -1, 32, -1)
        yield f"scatter {shape}", [k.scatter(gpu(vector), indices, columns)], [want], 1
        values = normal(batch, 32, blocks)
        thousands = (values * 1000).int()
        place = row[:, None].expand(-1, 32, -1)
        most = torch.full((batch, 32, rows), -100_000_000, dtype=torch.int32)
        most = most.scatter_reduce(2, place, thousands, "amax").double() / 1000
        both = [most.transpose(1, 2).reshape(batch, -1), most.gather(2, place)]
        yield f"index_max {shape}", list(k.index_max(gpu(values), indices, rows, columns)), both, 1


def yoso(k: Any) -> Iterator[Call]:
    """Sums over hash buckets: hashes by Hadamard transforms, cumulation, and its weighted versions.

    Versions 2 to 4 sort by counting, which lacks a __syncwarp() where there are more than 32 buckets.
    """
    for batch, n, hashes, dim, bits in ((1, 32, 8, 64, 4), (2, 64, 32, 64, 8)):
        capacity = 1 << bits
        masks = [(torch.rand(batch, n) < 0.8).int() for _ in "qk"]
        codes = [torch.randint(capacity, (batch, n, hashes), dtype=torch.int32) for _ in "qk"]
        value = normal(batch, n, dim)
        same = (codes[0][:, :, None] == codes[1][:, None]).double().mean(-1)
        same = same * masks[0][:, :, None] * masks[1][:, None]
        q, key, gv = [gpu(masks[0]), gpu(codes[0])], [gpu(masks[1]), gpu(codes[1])], gpu(value)
        shape = f"{batch} x {n}, {hashes} hashes"
        yield (
            f"lsh_cumulation {shape}",
            [k.lsh_cumulation(*q, *key, gv, capacity, True, 1)],
            [same @ value.double()],
            10,
        )
        weights = [normal(batch, n, 32) for _ in "qk"]
        want = (same * (weights[0].double() @ weights[1].double().transpose(1, 2))) @ value.double()
        for version in (1, 2, 3, 4) if capacity <= 32 else (1,):
            got = k.lsh_weighted_cumulation(
                *q, gpu(weights[0]), *key, gpu(weights[1]), gv, capacity, True, version
            )
            yield f"lsh_weighted_cumulation {version}, {shape}", [got], [want], 20
        vectors = [normal(batch, n, dim) for _ in "qk"]
        parts = max(1, -(-hashes // (dim // bits)))
        torch.manual_seed(n)
        signs = (2 * torch.randint(0, 2, (batch, 3, parts, dim), dtype=torch.int32) - 1).double()
        torch.manual_seed(n)
        got = k.fast_hash(q[0], gpu(vectors[0]), key[0], gpu(vectors[1]), hashes, bits, True, 1)
        hadamard = torch.ones(1, 1, dtype=F64)
        while len(hadamard) < dim:
            hadamard = torch.kron(torch.tensor([[1.0, 1], [1, -1]], dtype=F64), hadamard)
        wanted = []
        for vector, mask in zip(vectors, masks, strict=True):
            x = vector.double()[:, :, None].expand(-1, -1, parts, -1)
            for turn in range(3):
                x = (x * signs[:, None, turn]) @ hadamard
            bit = (x > 0).reshape(*x.shape[:-1], -1, bits).long() << torch.arange(bits)
            wanted.append(bit.sum(-1).flatten(2)[..., :hashes] * mask[..., None])
        yield f"fast_hash {shape}", list(got), wanted, 0
