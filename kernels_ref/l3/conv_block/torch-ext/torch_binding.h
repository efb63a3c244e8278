#pragma once

#include <torch/csrc/stable/tensor.h>

// out and residual: (batch, out_channels, height, width), x: (batch, in_channels, height, width),
// weight: (out_channels, in_channels, 3, 3), bias: (out_channels,), contiguous, one dtype.
void conv_block(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, const torch::stable::Tensor& residual);
