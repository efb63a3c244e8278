#pragma once

#include <torch/csrc/stable/tensor.h>

// out, norm, residual, x: (batch, tokens, hidden), gate, scale, shift: (batch, hidden), contiguous, one dtype.
void flux_adaln_gate(const torch::stable::Tensor& out, const torch::stable::Tensor& norm,
                     const torch::stable::Tensor& residual, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& gate, const torch::stable::Tensor& scale,
                     const torch::stable::Tensor& shift, double eps);
