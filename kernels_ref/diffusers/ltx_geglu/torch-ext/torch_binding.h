#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (tokens, inner), x: (tokens, 2 * inner), bias: (2 * inner,), contiguous, one dtype.
void ltx_geglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& bias);
