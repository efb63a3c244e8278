#pragma once

#include <cstdint>

#include <torch/csrc/stable/tensor.h>

// out, x: (n, channels, positions), weight and bias: (channels,), contiguous, one dtype; groups divides channels.
void group_norm_silu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& weight, const torch::stable::Tensor& bias, double eps,
                     int64_t groups);
