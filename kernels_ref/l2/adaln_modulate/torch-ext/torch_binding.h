#pragma once

#include <torch/csrc/stable/tensor.h>

// out, x: (batch, tokens, cols), shift, scale: (batch, cols), contiguous, one dtype.
void adaln_modulate(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                    const torch::stable::Tensor& shift, const torch::stable::Tensor& scale, double eps);
