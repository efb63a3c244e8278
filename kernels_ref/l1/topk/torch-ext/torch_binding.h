#pragma once

#include <torch/csrc/stable/tensor.h>

// values: (rows, k), the dtype of x; indices: (rows, k) int64; x: (rows, cols); all contiguous; k <= 64, k <= cols.
void topk(const torch::stable::Tensor& values, const torch::stable::Tensor& indices, const torch::stable::Tensor& x);
