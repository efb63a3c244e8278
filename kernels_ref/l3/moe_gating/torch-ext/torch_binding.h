#pragma once

#include <torch/csrc/stable/tensor.h>

// weights: (tokens, 8) float32, ids: (tokens, 8) int32, logits: (tokens, experts), bias: (experts,), contiguous.
void moe_gating(const torch::stable::Tensor& weights, const torch::stable::Tensor& ids,
                const torch::stable::Tensor& logits, const torch::stable::Tensor& bias, double scaling);
