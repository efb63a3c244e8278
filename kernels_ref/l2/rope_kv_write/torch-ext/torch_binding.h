#pragma once

#include <torch/csrc/stable/tensor.h>

// Caches: (blocks, block_size, kv_heads, head_dim), key and value: (tokens, kv_heads, head_dim), of one dtype; cos and
// sin: (tokens, head_dim / 2) float32; slots: (tokens,) int64, distinct. All contiguous.
void rope_kv_write(const torch::stable::Tensor& key_cache, const torch::stable::Tensor& value_cache,
                   const torch::stable::Tensor& key, const torch::stable::Tensor& value,
                   const torch::stable::Tensor& cos, const torch::stable::Tensor& sin,
                   const torch::stable::Tensor& slots);
