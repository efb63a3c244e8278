#pragma once

#include <torch/csrc/stable/tensor.h>

// All operands are (batch, tokens, heads, head_dim), contiguous, one dtype; scale is positive.
void flux_joint_attention(const torch::stable::Tensor& out_text, const torch::stable::Tensor& out_image,
                          const torch::stable::Tensor& q_text, const torch::stable::Tensor& k_text,
                          const torch::stable::Tensor& v_text, const torch::stable::Tensor& q_image,
                          const torch::stable::Tensor& k_image, const torch::stable::Tensor& v_image, double scale);
