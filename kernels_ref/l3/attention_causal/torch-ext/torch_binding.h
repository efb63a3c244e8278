#pragma once

#include <torch/csrc/stable/tensor.h>

// All operands are (batch, heads, length, head_dim), contiguous, one dtype; scale is positive.
void attention_causal(const torch::stable::Tensor& out, const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                      const torch::stable::Tensor& v, double scale);
