#pragma once

#include <torch/csrc/stable/tensor.h>

// x_sorted: (tokens * k, hidden), order: (tokens * k,), offsets: (experts + 1,), x: (tokens, hidden),
// ids: (tokens, k), load: (experts,); x and x_sorted of one dtype, the others int32, contiguous.
void moe_dispatch(const torch::stable::Tensor& x_sorted, const torch::stable::Tensor& order,
                  const torch::stable::Tensor& offsets, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& ids, const torch::stable::Tensor& load);
