// Rotary embedding over interleaved pairs on CUDA: float16, bfloat16, float32.
//
// Bound by memory, and by the float32 tables more than by x, so a thread keeps the cosines and sines of its 16-byte
// vector in registers and turns that vector for the whole batch: the tables are read once, not once per batch element.
// A token and its row of the tables are equally long, so a batch element is one flat run and a vector may span tokens.
// Where a batch element is not a whole number of vectors, the same kernel goes pair by pair, and where x or out starts
// at an odd element, such pairs are moved as two elements.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

// N elements moved as accesses of ALIGN bytes.
template <typename T, int N, int ALIGN = N * sizeof(T)>
struct alignas(ALIGN) Pack {
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

// out, x: (batch, count); cos, sin: (count). A thread has the N elements from i on of every batch element.
// All four are aligned to ALIGN / sizeof(T) of their elements.
template <typename T, int N, int ALIGN = N * sizeof(T)>
__global__ void __launch_bounds__(256) rotate(T* __restrict__ out, const T* __restrict__ x,
                                              const float* __restrict__ cos, const float* __restrict__ sin,
                                              int64_t batch, int64_t count) {
  using Vec = Pack<T, N, ALIGN>;
  // A float vector is at most 16 bytes: 8 halves go with two of them.
  constexpr int F = N < 4 ? N : 4;
  using Floats = Pack<float, F, (ALIGN < N * sizeof(T) ? sizeof(float) : F * sizeof(float))>;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= count) return;
  Floats c[N / F], s[N / F];
#pragma unroll
  for (int k = 0; k < N / F; ++k) {
    c[k] = reinterpret_cast<const Floats*>(cos + i)[k];
    s[k] = reinterpret_cast<const Floats*>(sin + i)[k];
  }
#pragma unroll 2
  for (int64_t b = 0; b < batch; ++b) {
    const Vec v = *reinterpret_cast<const Vec*>(x + b * count + i);
    Vec result;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      const float even = to_float(v.v[n]), odd = to_float(v.v[n + 1]);
      const int k = n / F, at = n % F;
      result.v[n] = from_float<T>(even * c[k].v[at] - odd * s[k].v[at]);
      result.v[n + 1] = from_float<T>(odd * c[k].v[at + 1] + even * s[k].v[at + 1]);
    }
    *reinterpret_cast<Vec*>(out + b * count + i) = result;
  }
}

bool aligned(const void* p, uintptr_t bytes = 16) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

template <typename T>
void launch(T* out, const T* x, const float* cos, const float* sin, int64_t batch, int64_t count, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const bool whole = count % N == 0 && aligned(out) && aligned(x) && aligned(cos) && aligned(sin);
  const int64_t vectors = whole ? count / N : count / 2;
  const bool pairs = aligned(out, 2 * sizeof(T)) && aligned(x, 2 * sizeof(T)) && aligned(cos, 8) && aligned(sin, 8);
  const auto kernel = whole ? rotate<T, N> : pairs ? rotate<T, 2> : rotate<T, 2, sizeof(T)>;
  kernel<<<static_cast<unsigned>((vectors + 255) / 256), 256, 0, stream>>>(out, x, cos, sin, batch, count);
}

}  // namespace

void ltx_rope_3d(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& cos,
                 const torch::stable::Tensor& sin) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && cos.dim() == 2 && sin.dim() == 2,
                  "ltx_rope_3d: expected (batch, tokens, hidden) and (tokens, hidden)");
  const int64_t batch = x.size(0), tokens = x.size(1), hidden = x.size(2);
  STD_TORCH_CHECK(hidden % 2 == 0, "ltx_rope_3d: hidden must be even");
  STD_TORCH_CHECK(tokens * hidden <= INT32_MAX, "ltx_rope_3d: tensor too large");
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == tokens && out.size(2) == hidden,
                  "ltx_rope_3d: shapes of x and out differ");
  STD_TORCH_CHECK(out.scalar_type() == x.scalar_type(), "ltx_rope_3d: dtypes of x and out differ");
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->size(0) == tokens && t->size(1) == hidden, "ltx_rope_3d: wrong shape of cos or sin");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "ltx_rope_3d: cos and sin are float32");
  }
  for (const auto* t : {&out, &x, &cos, &sin}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "ltx_rope_3d: expected contiguous tensors on one CUDA device");
  }
  if (batch == 0 || tokens == 0 || hidden == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "ltx_rope_3d: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const float*>(cos.const_data_ptr()), static_cast<const float*>(sin.const_data_ptr()), batch,
           tokens * hidden, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "ltx_rope_3d: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "ltx_rope_3d: ", cudaGetErrorString(error));
}
