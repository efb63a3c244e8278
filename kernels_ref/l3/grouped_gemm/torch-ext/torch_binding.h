#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (tokens, n), x: (tokens, k), weights: (experts, n, k), one dtype; offsets: (experts + 1,) int64; contiguous.
void grouped_gemm(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& weights, const torch::stable::Tensor& offsets);
