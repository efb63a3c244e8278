#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (rows, cols), x: (rows, cols), weight and bias: (cols,), contiguous, one dtype.
void layer_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, double eps);
