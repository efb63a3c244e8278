#pragma once

#include <torch/csrc/stable/tensor.h>

// q_out, q: (batch, q_tokens, hidden), k_out, k: (batch, k_tokens, hidden), weights: (hidden,), contiguous, one dtype.
void ltx_rms_norm(const torch::stable::Tensor& q_out, const torch::stable::Tensor& k_out,
                  const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                  const torch::stable::Tensor& q_weight, const torch::stable::Tensor& k_weight, double eps);
