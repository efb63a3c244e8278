// Clamped SwiGLU of interleaved columns on CUDA: float16, bfloat16, float32.
//
// Bound by memory. Columns come in pairs (gate, linear), and rows follow each other without a gap, so the whole tensor
// is one list of pairs: a thread makes one 16-byte vector of results from two of pairs, whatever the width of a row.
// A pair never lies across two threads, so nothing has to be exchanged. What is left at the end (fewer results than a
// vector holds) goes to the first block. Exponential and division hide behind the loads.

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

// N elements by one access of 16 bytes, or one of one element.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load(const T* p) {
  Pack<T, N> pack;
  if constexpr (sizeof(pack) == 16) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    __builtin_memcpy(&pack, &raw, 16);
  } else {
    pack.v[0] = *p;
  }
  return pack;
}

__device__ __forceinline__ float activation(float gate, float linear, float alpha, float limit) {
  const float g = fminf(gate, limit);
  const float l = fminf(fmaxf(linear, -limit), limit);
  return __fdividef(g, 1.0f + __expf(-alpha * g)) * (l + 1.0f);
}

constexpr int kThreads = 256;

// N results of each thread; N is 1 where a tensor is not aligned to 16 bytes.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) activate_pairs(T* __restrict__ out, const T* __restrict__ x, int64_t count,
                                                           float alpha, float limit) {
  const int64_t j = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (j + N <= count) {
    const Pack<T, N> low = load<T, N>(x + 2 * j), high = load<T, N>(x + 2 * j + N);
    Pack<T, N> result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int at = 2 * n;  // of the gate, within low and high together
      const T gate = at < N ? low.v[at % N] : high.v[at % N];
      const T linear = at + 1 < N ? low.v[(at + 1) % N] : high.v[(at + 1) % N];
      result.v[n] = from_float<T>(activation(to_float(gate), to_float(linear), alpha, limit));
    }
    *reinterpret_cast<Pack<T, N>*>(out + j) = result;
  }
  const int64_t last = count / N * N + threadIdx.x;
  if (blockIdx.x == 0 && last < count)
    out[last] = from_float<T>(activation(to_float(x[2 * last]), to_float(x[2 * last + 1]), alpha, limit));
}

template <typename T, int N>
void launch_pairs(T* out, const T* x, int64_t count, float alpha, float limit, cudaStream_t stream) {
  const int64_t per_block = static_cast<int64_t>(kThreads) * N;
  const int64_t blocks = (count + per_block - 1) / per_block;
  STD_TORCH_CHECK(blocks <= INT32_MAX, "swiglu_clamped: tensor too large");
  activate_pairs<T, N><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(out, x, count, alpha, limit);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(T* out, const T* x, int64_t count, float alpha, float limit, cudaStream_t stream) {
  if (aligned(out) && aligned(x)) {
    launch_pairs<T, 16 / sizeof(T)>(out, x, count, alpha, limit, stream);
  } else {
    launch_pairs<T, 1>(out, x, count, alpha, limit, stream);
  }
}

}  // namespace

void swiglu_clamped(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha, double limit) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "swiglu_clamped: expected (rows, cols) and (rows, 2 * cols)");
  const int64_t rows = out.size(0), cols = out.size(1);
  STD_TORCH_CHECK(x.size(0) == rows && x.size(1) == 2 * cols, "swiglu_clamped: shapes differ");
  STD_TORCH_CHECK(x.scalar_type() == out.scalar_type(), "swiglu_clamped: dtypes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "swiglu_clamped: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "swiglu_clamped: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()), rows * cols,
           static_cast<float>(alpha), static_cast<float>(limit), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "swiglu_clamped: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "swiglu_clamped: ", cudaGetErrorString(error));
}
