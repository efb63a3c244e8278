#pragma once

#include <torch/csrc/stable/tensor.h>

// out, q: (batch, heads, head_dim), caches: (batch, kv_heads, max_len, head_dim), one dtype; lengths: (batch,) int32.
// All are contiguous; scale is positive.
void gqa_decode_attention(const torch::stable::Tensor& out, const torch::stable::Tensor& q,
                          const torch::stable::Tensor& k_cache, const torch::stable::Tensor& v_cache,
                          const torch::stable::Tensor& lengths, double scale);
