#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (m, n), a: (m, k), b: (n, k), scale_a: (m,), scale_b: (n,), contiguous; a and b float8_e4m3fn, scales float32.
void gemm_fp8(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b,
              const torch::stable::Tensor& scale_a, const torch::stable::Tensor& scale_b);
