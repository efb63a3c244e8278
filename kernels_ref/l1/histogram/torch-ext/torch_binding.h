#pragma once

#include <torch/csrc/stable/tensor.h>

// counts: (bins,) int32, x: (count,), contiguous.
void histogram(const torch::stable::Tensor& counts, const torch::stable::Tensor& x, double low, double high);
