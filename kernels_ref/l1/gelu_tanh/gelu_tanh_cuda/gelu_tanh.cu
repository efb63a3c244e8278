// GELU, tanh approximation, on CUDA: float16, bfloat16, float32.
//
// Bound by memory: every thread has two 16-byte loads in flight and stores two vectors. (1 + tanh(u)) / 2 is
// 1 / (1 + e^(-2u)), one exponential and one fast division, which hide behind the loads. Where both tensors are off
// 16 bytes by the same amount, the first few elements are peeled off, so that the rest is whole vectors; where they
// are off by different amounts, it goes element by element.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

// N elements moved as one access of N * sizeof(T) bytes.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) { return v; }
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

// v / (1 + e^(-2u)), u = sqrt(2 / pi) (v + 0.044715 v^3).
__device__ __forceinline__ float gelu(float v) {
  return __fdividef(v, 1.0f + __expf(v * (v * v * -0.0713548163f - 1.59576912f)));
}

constexpr int kThreads = 256;
constexpr int kVecs = 2;  // vectors of a thread, one block of threads apart

// `vectors` vectors from element `head` on; the elements before and after them (fewer than 2 N) go to the first block.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) gelu_vectors(T* __restrict__ out, const T* __restrict__ x, int64_t count,
                                                         int64_t vectors, int head) {
  using Vec = Pack<T, N>;
  const Vec* x_vectors = reinterpret_cast<const Vec*>(x + head);
  Vec* out_vectors = reinterpret_cast<Vec*>(out + head);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kVecs * kThreads) + threadIdx.x;
  Vec values[kVecs]{};
#pragma unroll
  for (int k = 0; k < kVecs; ++k)
    if (first + k * kThreads < vectors) values[k] = x_vectors[first + k * kThreads];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) values[k].v[n] = from_float<T>(gelu(to_float(values[k].v[n])));
    if (first + k * kThreads < vectors) out_vectors[first + k * kThreads] = values[k];
  }
  if (blockIdx.x == 0) {
    const int64_t rest = count - vectors * N;
    if (threadIdx.x < rest) {
      const int64_t i = static_cast<int>(threadIdx.x) < head ? threadIdx.x : threadIdx.x + vectors * N;
      out[i] = from_float<T>(gelu(to_float(x[i])));
    }
  }
}

template <typename T, int N>
void launch_vectors(T* out, const T* x, int64_t count, int head, cudaStream_t stream) {
  const int64_t vectors = count > head ? (count - head) / N : 0;
  const int64_t blocks = (vectors + kVecs * kThreads - 1) / (kVecs * kThreads);
  STD_TORCH_CHECK(blocks <= INT32_MAX, "gelu_tanh: tensor too large");
  const unsigned grid = blocks > 0 ? static_cast<unsigned>(blocks) : 1;
  gelu_vectors<T, N><<<grid, kThreads, 0, stream>>>(out, x, count, vectors, head);
}

template <typename T>
void launch(T* out, const T* x, int64_t count, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const auto offset = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16; };
  if (offset(out) == offset(x)) {
    // Elements up to the next multiple of 16 bytes.
    launch_vectors<T, N>(out, x, count, static_cast<int>((16 - offset(x)) % 16 / sizeof(T)), stream);
  } else {
    launch_vectors<T, 1>(out, x, count, 0, stream);
  }
}

}  // namespace

void gelu_tanh(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 1 && out.dim() == 1 && x.size(0) == out.size(0), "gelu_tanh: expected (count,) twice");
  STD_TORCH_CHECK(x.scalar_type() == out.scalar_type(), "gelu_tanh: dtypes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "gelu_tanh: expected contiguous tensors on one CUDA device");
  }
  const int64_t count = x.size(0);
  if (count == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "gelu_tanh: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()), count, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "gelu_tanh: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "gelu_tanh: ", cudaGetErrorString(error));
}
