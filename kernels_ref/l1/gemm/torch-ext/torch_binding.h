#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (m, n), a: (m, k), b: (n, k), contiguous, one dtype.
void gemm(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b);
