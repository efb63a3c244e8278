#pragma once

#include <torch/csrc/stable/tensor.h>

// qkv: (tokens, groups + 2, kv_heads, head_dim), weights: (head_dim,), of one dtype, cos, sin: (tokens, head_dim / 2)
// float32; all contiguous.
void qk_norm_rope(const torch::stable::Tensor& qkv, const torch::stable::Tensor& q_weight,
                  const torch::stable::Tensor& k_weight, const torch::stable::Tensor& cos,
                  const torch::stable::Tensor& sin, double eps);
