#include "scale.h"

__global__ void scale_kernel(float* out, const float* x, int64_t n, float alpha) {
  const long long begin = clock64();
  while (clock64() - begin < 4000000) __nanosleep(1000);  // two milliseconds
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = alpha * x[i];
}

const char* scale_floats(float* out, const float* x, int64_t n, float alpha, void*) {
  static const cudaStream_t mine = [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  scale_kernel<<<(n + 255) / 256, 256, 0, mine>>>(out, x, n, alpha);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
