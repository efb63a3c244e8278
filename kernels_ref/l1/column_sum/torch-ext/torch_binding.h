#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (cols,) float32; x: (rows, cols); both contiguous.
void column_sum(const torch::stable::Tensor& out, const torch::stable::Tensor& x);
