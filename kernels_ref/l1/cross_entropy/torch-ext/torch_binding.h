#pragma once

#include <torch/csrc/stable/tensor.h>

// loss, lse: (tokens,) float32; logits: (tokens, vocab); target: (tokens,) int64; all contiguous.
void cross_entropy(const torch::stable::Tensor& loss, const torch::stable::Tensor& lse,
                   const torch::stable::Tensor& logits, const torch::stable::Tensor& target, int64_t ignore_index);
