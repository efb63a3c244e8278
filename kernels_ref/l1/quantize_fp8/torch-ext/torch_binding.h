#pragma once

#include <torch/csrc/stable/tensor.h>

// q: (rows, cols) float8_e4m3fn, scale: (rows,) float32, x: (rows, cols), contiguous.
void quantize_fp8(const torch::stable::Tensor& q, const torch::stable::Tensor& scale, const torch::stable::Tensor& x);
