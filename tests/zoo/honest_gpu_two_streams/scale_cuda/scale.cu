#include "scale.h"

__global__ void scale_kernel(float* out, const float* x, int64_t n, float alpha) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = alpha * x[i];
}

namespace {

struct Second {
  cudaStream_t stream = nullptr;
  cudaEvent_t fork = nullptr, join = nullptr;
  Second() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  }
};

}  // namespace

const char* scale_floats(float* out, const float* x, int64_t n, float alpha, void* raw) {
  static const Second second;
  const auto first = static_cast<cudaStream_t>(raw);
  const int64_t half = n / 2;
  cudaEventRecord(second.fork, first);
  cudaStreamWaitEvent(second.stream, second.fork, 0);
  if (half > 0) scale_kernel<<<(half + 255) / 256, 256, 0, first>>>(out, x, half, alpha);
  scale_kernel<<<(n - half + 255) / 256, 256, 0, second.stream>>>(out + half, x + half, n - half, alpha);
  cudaEventRecord(second.join, second.stream);
  cudaStreamWaitEvent(first, second.join, 0);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
