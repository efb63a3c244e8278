#pragma once

#include <torch/csrc/stable/tensor.h>

// out, q: (batch, heads, queries, head_dim), k, v: (batch, heads, keys, head_dim), contiguous, one dtype;
// scale is positive.
void attention_full(const torch::stable::Tensor& out, const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                      const torch::stable::Tensor& v, double scale);
