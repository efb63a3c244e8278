#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (m, n), x: (m, k), weight: (n, k), bias: (n,), contiguous, one dtype.
void gemm_bias_gelu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                    const torch::stable::Tensor& weight, const torch::stable::Tensor& bias);
