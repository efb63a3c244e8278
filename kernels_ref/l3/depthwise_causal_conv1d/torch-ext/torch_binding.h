#pragma once

#include <torch/csrc/stable/tensor.h>

// out and x: (batch, dim, length), weight: (dim, 4), bias: (dim,), contiguous, one dtype.
void depthwise_causal_conv1d(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                             const torch::stable::Tensor& weight, const torch::stable::Tensor& bias);
