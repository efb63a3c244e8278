#pragma once

#include <torch/csrc/stable/tensor.h>

// out, x, residual: (rows, cols), weight: (cols,), contiguous, one dtype. residual is read and written.
void add_rms_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& residual, const torch::stable::Tensor& weight, double eps);
