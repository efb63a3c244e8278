#pragma once

#include <torch/csrc/stable/tensor.h>

// out and x: (batch, channels, height, width), weight: (channels, kernel, kernel), bias: (channels,),
// contiguous, one dtype.
void depthwise_conv2d(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                      const torch::stable::Tensor& weight, const torch::stable::Tensor& bias);
