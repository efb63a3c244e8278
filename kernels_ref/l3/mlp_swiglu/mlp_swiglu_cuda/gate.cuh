// The gate of SwiGLU in float32.

#pragma once

// silu(g) * u = g * u / (1 + e^(-g)). Beyond e^80 the quotient is 0 for every bfloat16, and the fast division wants a
// denominator below 2^126.
__device__ __forceinline__ float gated(float g, float u) {
  return __fdividef(g, 1.0f + __expf(fminf(-g, 80.0f))) * u;
}
