#pragma once

#include <torch/csrc/stable/tensor.h>

// loss, grad_loss: (tokens,) float32; logits: (tokens, vocab), replaced by its gradient; target: (tokens,) int64; all
// contiguous.
void cross_entropy_grad(const torch::stable::Tensor& loss, const torch::stable::Tensor& logits,
                        const torch::stable::Tensor& target, const torch::stable::Tensor& grad_loss,
                        int64_t ignore_index);
