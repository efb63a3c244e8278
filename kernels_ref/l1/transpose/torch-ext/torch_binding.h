#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (batch, cols, rows), x: (batch, rows, cols), contiguous, one dtype.
void transpose(const torch::stable::Tensor& out, const torch::stable::Tensor& x);
