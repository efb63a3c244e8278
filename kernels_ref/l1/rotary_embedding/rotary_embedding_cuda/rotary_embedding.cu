// Rotary position embedding on CUDA: float16, bfloat16, float32.
//
// Bound by memory, so the design is about moving bytes: a block has one token, and each thread one 16-byte vector of
// the first half of a head together with its partner in the second half, so both are read once and written once.
// Cosines and sines are loaded into registers once per thread and reused for the other heads that it serves.
// Heads whose half is not a whole number of vectors take the same kernel one element at a time.

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

// out, x: (tokens, heads, 2 * half); cos, sin: (tokens, half). threadIdx.x runs along the half, threadIdx.y over heads.
template <typename T, int N>
__global__ void __launch_bounds__(256) rotate(T* __restrict__ out, const T* __restrict__ x,
                                              const float* __restrict__ cos, const float* __restrict__ sin,
                                              int64_t heads, int64_t half) {
  using Vec = Pack<T, N>;
  // A float vector is at most 16 bytes: 8 halves go with two of them.
  constexpr int F = N < 4 ? N : 4;
  using Floats = Pack<float, F>;
  const int64_t token = blockIdx.x;
  for (int64_t i = threadIdx.x * N; i < half; i += blockDim.x * N) {
    Floats c[N / F], s[N / F];
#pragma unroll
    for (int k = 0; k < N / F; ++k) {
      c[k] = reinterpret_cast<const Floats*>(cos + token * half + i)[k];
      s[k] = reinterpret_cast<const Floats*>(sin + token * half + i)[k];
    }
#pragma unroll 2
    for (int64_t head = blockIdx.y * blockDim.y + threadIdx.y; head < heads; head += gridDim.y * blockDim.y) {
      const int64_t at = (token * heads + head) * 2 * half + i;
      const Vec a = *reinterpret_cast<const Vec*>(x + at);
      const Vec b = *reinterpret_cast<const Vec*>(x + at + half);
      Vec first, second;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float cn = c[n / F].v[n % F], sn = s[n / F].v[n % F];
        const float an = to_float(a.v[n]), bn = to_float(b.v[n]);
        first.v[n] = from_float<T>(an * cn - bn * sn);
        second.v[n] = from_float<T>(bn * cn + an * sn);
      }
      *reinterpret_cast<Vec*>(out + at) = first;
      *reinterpret_cast<Vec*>(out + at + half) = second;
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, int N>
void launch_vectors(T* out, const T* x, const float* cos, const float* sin, int64_t tokens, int64_t heads, int64_t half,
                    cudaStream_t stream) {
  const int64_t vectors = half / N;
  int wide = 256;  // threads along the half: a power of two, so that the others can take further heads
  while (wide > 1 && wide / 2 >= vectors) wide /= 2;
  int high = 256 / wide;
  while (high > 1 && high / 2 >= heads) high /= 2;
  const dim3 block(wide, high);
  // With few tokens, spread the heads over several blocks; with many, let a thread keep its cosines for all of them.
  const int64_t groups = (heads + high - 1) / high;
  const dim3 grid(static_cast<unsigned>(tokens), tokens >= 1024 ? 1 : static_cast<unsigned>(groups));
  rotate<T, N><<<grid, block, 0, stream>>>(out, x, cos, sin, heads, half);
}

template <typename T>
void launch(T* out, const T* x, const float* cos, const float* sin, int64_t tokens, int64_t heads, int64_t half,
            cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  if (half % N == 0 && aligned(out) && aligned(x) && aligned(cos) && aligned(sin)) {
    launch_vectors<T, N>(out, x, cos, sin, tokens, heads, half, stream);
  } else {
    launch_vectors<T, 1>(out, x, cos, sin, tokens, heads, half, stream);
  }
}

}  // namespace

void rotary_embedding(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                      const torch::stable::Tensor& cos, const torch::stable::Tensor& sin) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && cos.dim() == 2 && sin.dim() == 2,
                  "rotary_embedding: expected (tokens, heads, head_dim) and (tokens, head_dim / 2)");
  const int64_t tokens = x.size(0), heads = x.size(1), half = x.size(2) / 2;
  STD_TORCH_CHECK(x.size(2) == 2 * half, "rotary_embedding: head_dim must be even");
  STD_TORCH_CHECK(tokens <= INT32_MAX && heads <= 65535, "rotary_embedding: tensor too large");
  STD_TORCH_CHECK(out.size(0) == tokens && out.size(1) == heads && out.size(2) == 2 * half,
                  "rotary_embedding: shapes of x and out differ");
  STD_TORCH_CHECK(out.scalar_type() == x.scalar_type(), "rotary_embedding: dtypes of x and out differ");
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->size(0) == tokens && t->size(1) == half, "rotary_embedding: wrong shape of cos or sin");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "rotary_embedding: cos and sin are float32");
  }
  for (const auto* t : {&out, &x, &cos, &sin}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "rotary_embedding: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0 || heads == 0 || half == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "rotary_embedding: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const float*>(cos.const_data_ptr()), static_cast<const float*>(sin.const_data_ptr()), tokens,
           heads, half, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "rotary_embedding: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "rotary_embedding: ", cudaGetErrorString(error));
}
