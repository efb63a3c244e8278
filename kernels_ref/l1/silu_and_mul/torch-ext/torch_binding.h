#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (rows, cols), x: (rows, 2 * cols), contiguous, one dtype.
void silu_and_mul(const torch::stable::Tensor& out, const torch::stable::Tensor& x);
