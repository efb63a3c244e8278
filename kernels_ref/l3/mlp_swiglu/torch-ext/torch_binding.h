#pragma once

#include <torch/csrc/stable/tensor.h>

// out and x: (tokens, hidden), w_gate and w_up: (inner, hidden), w_down: (hidden, inner), contiguous, one dtype.
void mlp_swiglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& w_gate,
                const torch::stable::Tensor& w_up, const torch::stable::Tensor& w_down);
