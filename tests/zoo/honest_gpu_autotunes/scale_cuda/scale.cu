#include "scale.h"

#include <map>

__global__ void scale_kernel(float* out, const float* x, int64_t n, float alpha) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = alpha * x[i];
}

static void launch(float* out, const float* x, int64_t n, float alpha, int block, cudaStream_t stream) {
  scale_kernel<<<(n + block - 1) / block, block, 0, stream>>>(out, x, n, alpha);
}

static int fastest(float* out, const float* x, int64_t n, float alpha, cudaStream_t stream) {
  cudaEvent_t start = nullptr, end = nullptr;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  int chosen = 256;
  float least = 1e30f;
  for (const int block : {128, 256, 512}) {
    float took = 0;
    launch(out, x, n, alpha, block, stream);
    cudaEventRecord(start, stream);
    for (int i = 0; i < 5; ++i) launch(out, x, n, alpha, block, stream);
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&took, start, end);
    if (took < least) {
      least = took;
      chosen = block;
    }
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  return chosen;
}

const char* scale_floats(float* out, const float* x, int64_t n, float alpha, void* raw) {
  const auto stream = static_cast<cudaStream_t>(raw);
  static std::map<int64_t, int> known;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  if (known.count(n) == 0 && status == cudaStreamCaptureStatusNone) known[n] = fastest(out, x, n, alpha, stream);
  launch(out, x, n, alpha, known.count(n) ? known[n] : 256, stream);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
