#pragma once

#include <torch/csrc/stable/tensor.h>

// out, q: (batch, heads, head_dim), caches: (blocks, block_size, kv_heads, head_dim), one dtype; block_table:
// (batch, max_blocks) int32, context_lens: (batch,) int32. All are contiguous; scale is positive.
void paged_decode_attention(const torch::stable::Tensor& out, const torch::stable::Tensor& q,
                            const torch::stable::Tensor& k_cache, const torch::stable::Tensor& v_cache,
                            const torch::stable::Tensor& block_table, const torch::stable::Tensor& context_lens,
                            double scale);
