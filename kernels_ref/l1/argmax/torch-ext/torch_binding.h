#pragma once

#include <torch/csrc/stable/tensor.h>

// index: (rows,) int64; x: (rows, cols); both contiguous, of any alignment.
void argmax(const torch::stable::Tensor& index, const torch::stable::Tensor& x);
