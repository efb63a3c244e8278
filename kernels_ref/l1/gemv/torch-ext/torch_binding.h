#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (batch, n), x: (batch, k), w: (n, k), contiguous, one dtype.
void gemv(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& w);
