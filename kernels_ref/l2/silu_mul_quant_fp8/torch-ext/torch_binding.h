#pragma once

#include <torch/csrc/stable/tensor.h>

// scale: (tokens, 1) float32, q: (tokens, dim) float8_e4m3fn, x: (tokens, 2 * dim), contiguous.
void silu_mul_quant_fp8(const torch::stable::Tensor& scale, const torch::stable::Tensor& q,
                        const torch::stable::Tensor& x);
