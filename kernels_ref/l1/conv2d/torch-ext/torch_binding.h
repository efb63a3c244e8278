#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (batch, out_channels, height, width), x: (batch, in_channels, height, width),
// weight: (out_channels, in_channels, 3, 3), contiguous, one dtype.
void conv2d(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight);
