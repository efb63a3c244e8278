#pragma once

#include <torch/csrc/stable/tensor.h>

// q: (rows, cols) int8, scale: (rows,) float32, x: (rows, cols), contiguous.
void quantize_int8(const torch::stable::Tensor& q, const torch::stable::Tensor& scale, const torch::stable::Tensor& x);
