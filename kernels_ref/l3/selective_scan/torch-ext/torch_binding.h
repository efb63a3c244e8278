#pragma once

#include <torch/csrc/stable/tensor.h>

// out, u, delta: (batch, dim, length), B, C: (batch, state, length), one dtype; A: (dim, state), D: (dim,), float32.
void selective_scan(const torch::stable::Tensor& out, const torch::stable::Tensor& u,
                    const torch::stable::Tensor& delta, const torch::stable::Tensor& A,
                    const torch::stable::Tensor& B, const torch::stable::Tensor& C, const torch::stable::Tensor& D);
