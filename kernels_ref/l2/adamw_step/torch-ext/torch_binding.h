#pragma once

#include <torch/csrc/stable/tensor.h>

// All (count,), contiguous: p and grad of one dtype, exp_avg and exp_avg_sq float32. `step` counts from 1.
void adamw_step(const torch::stable::Tensor& p, const torch::stable::Tensor& grad, const torch::stable::Tensor& exp_avg,
                const torch::stable::Tensor& exp_avg_sq, double lr, double beta1, double beta2, double eps,
                double weight_decay, int64_t step);
