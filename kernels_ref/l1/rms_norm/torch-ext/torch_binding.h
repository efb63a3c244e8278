#pragma once

#include <torch/csrc/stable/tensor.h>

// out: (rows, cols), x: (rows, cols), weight: (cols,), contiguous, one dtype.
void rms_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
              const torch::stable::Tensor& weight, double eps);
