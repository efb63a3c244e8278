#pragma once

#include <torch/csrc/stable/tensor.h>

// out, x: (tokens, heads, head_dim) of one dtype; cos, sin: (tokens, head_dim / 2) float32; all contiguous.
void rotary_embedding(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& cos,
                      const torch::stable::Tensor& sin);
