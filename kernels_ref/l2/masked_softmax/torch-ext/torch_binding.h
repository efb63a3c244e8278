#pragma once

#include <torch/csrc/stable/tensor.h>

// out, scores: (batch, heads, queries, keys), one dtype; mask: (batch, queries, keys) bool. out is contiguous, the others
// are within a batch: theirs may have any stride between batches.
void masked_softmax(const torch::stable::Tensor& out, const torch::stable::Tensor& scores,
                    const torch::stable::Tensor& mask, double scale);
