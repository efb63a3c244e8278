#pragma once

#include <torch/csrc/stable/tensor.h>

// out, x: (batch, tokens, hidden) of one dtype, cos, sin: (tokens, hidden) float32, contiguous; hidden is even.
void ltx_rope_3d(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& cos,
                 const torch::stable::Tensor& sin);
