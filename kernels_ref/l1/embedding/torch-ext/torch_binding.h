#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (tokens, dim), ids: (tokens,) int64, table: (vocab, dim), contiguous; out and table of one dtype.
void embedding(const torch::stable::Tensor& out, const torch::stable::Tensor& ids, const torch::stable::Tensor& table);
