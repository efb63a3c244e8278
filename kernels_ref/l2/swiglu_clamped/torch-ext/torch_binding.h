#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (rows, cols), x: (rows, 2 * cols), gate and linear interleaved; contiguous, one dtype.
void swiglu_clamped(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha, double limit);
