#pragma once

#include <torch/csrc/stable/tensor.h>

// out, x: (count,), contiguous, one dtype; aligned to their elements only.
void gelu_tanh(const torch::stable::Tensor& out, const torch::stable::Tensor& x);
