// Bias and GELU (tanh form), in float32, on two neighbouring columns.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

__device__ __forceinline__ float widened(__half v) { return __half2float(v); }
__device__ __forceinline__ float widened(__nv_bfloat16 v) { return __bfloat162float(v); }

struct Shift {
  float first, second;
};

// The bias of columns `col` and `col` + 1; 0 where there is no such column.
template <typename T>
__device__ __forceinline__ Shift shift_of(const T* __restrict__ bias, int64_t col, int64_t cols) {
  return {col < cols ? widened(bias[col]) : 0.0f, col + 1 < cols ? widened(bias[col + 1]) : 0.0f};
}

// y / 2 * (1 + tanh(u)) is y / (1 + e^(-2u)). Beyond e^80 the quotient is 0 for every float16 and bfloat16, and the
// fast division wants a denominator below 2^126.
__device__ __forceinline__ float gelu(float y) {
  const float exponent = -2.0f * y * (0.797884561f + 0.0356774081f * y * y);
  return __fdividef(y, 1.0f + __expf(fminf(exponent, 80.0f)));
}
