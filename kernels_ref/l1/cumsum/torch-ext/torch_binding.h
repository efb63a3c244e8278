#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (rows, cols), x: (rows, cols), contiguous, one dtype.
void cumsum(const torch::stable::Tensor& out, const torch::stable::Tensor& x);
