#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (batch, n), x: (batch, k), packed: (n, k / 2) uint8, scales: (n, k / 128), contiguous,
// all but packed of one dtype.
void w4a16_gemv(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& packed,
                const torch::stable::Tensor& scales);
