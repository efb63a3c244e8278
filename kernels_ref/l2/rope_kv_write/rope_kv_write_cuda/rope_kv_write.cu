// Rotary embedding of keys and write of keys and values into a paged cache on CUDA: float16, bfloat16, float32.
//
// Bound by memory, so the design is about moving bytes: a block has one token, and each thread one 16-byte vector of
// the first half of a head together with its partner in the second half, of the keys and of the values: four loads in
// flight, four stores. Cosines and sines are loaded into registers once per thread and reused for the other heads that
// it serves. Slots index (block, place) pairs in order, so a slot is a row of the cache, and there is no division.
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

// New tokens: key, value (tokens, heads, 2 * half), cos, sin (tokens, half), slots (tokens,).
template <typename T>
struct Tokens {
  const T *key, *value;
  const float *cos, *sin;
  const int64_t* slots;
  int64_t tokens, heads, half;
};

// threadIdx.x runs along the half, threadIdx.y over heads.
template <typename T, int N>
__global__ void __launch_bounds__(256) write_tokens(T* __restrict__ key_cache, T* __restrict__ value_cache,
                                                    Tokens<T> t) {
  using Vec = Pack<T, N>;
  // A float vector is at most 16 bytes: 8 halves go with two of them.
  constexpr int F = N < 4 ? N : 4;
  using Floats = Pack<float, F>;
  const int64_t token = blockIdx.x, half = t.half, heads = t.heads;
  const int64_t slot = t.slots[token];
  for (int64_t i = threadIdx.x * N; i < half; i += blockDim.x * N) {
    Floats c[N / F], s[N / F];
#pragma unroll
    for (int k = 0; k < N / F; ++k) {
      c[k] = reinterpret_cast<const Floats*>(t.cos + token * half + i)[k];
      s[k] = reinterpret_cast<const Floats*>(t.sin + token * half + i)[k];
    }
    for (int64_t head = blockIdx.y * blockDim.y + threadIdx.y; head < heads; head += gridDim.y * blockDim.y) {
      const int64_t from = (token * heads + head) * 2 * half + i, to = (slot * heads + head) * 2 * half + i;
      const Vec a = *reinterpret_cast<const Vec*>(t.key + from);
      const Vec b = *reinterpret_cast<const Vec*>(t.key + from + half);
      const Vec value_a = *reinterpret_cast<const Vec*>(t.value + from);
      const Vec value_b = *reinterpret_cast<const Vec*>(t.value + from + half);
      Vec first, second;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float cn = c[n / F].v[n % F], sn = s[n / F].v[n % F];
        const float an = to_float(a.v[n]), bn = to_float(b.v[n]);
        first.v[n] = from_float<T>(an * cn - bn * sn);
        second.v[n] = from_float<T>(bn * cn + an * sn);
      }
      *reinterpret_cast<Vec*>(key_cache + to) = first;
      *reinterpret_cast<Vec*>(key_cache + to + half) = second;
      *reinterpret_cast<Vec*>(value_cache + to) = value_a;
      *reinterpret_cast<Vec*>(value_cache + to + half) = value_b;
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, int N>
void launch_vectors(T* key_cache, T* value_cache, const Tokens<T>& t, cudaStream_t stream) {
  const int64_t vectors = t.half / N;
  int wide = 256;  // threads along the half: a power of two, so that the others can take further heads
  while (wide > 1 && wide / 2 >= vectors) wide /= 2;
  int high = 256 / wide;
  while (high > 1 && high / 2 >= t.heads) high /= 2;
  const dim3 block(wide, high);
  // With few tokens, spread the heads over several blocks; with many, let a thread keep its cosines for all of them.
  const int64_t groups = (t.heads + high - 1) / high;
  const dim3 grid(static_cast<unsigned>(t.tokens), t.tokens >= 1024 ? 1 : static_cast<unsigned>(groups));
  write_tokens<T, N><<<grid, block, 0, stream>>>(key_cache, value_cache, t);
}

template <typename T>
void launch(T* key_cache, T* value_cache, const Tokens<T>& t, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const bool all = aligned(key_cache) && aligned(value_cache) && aligned(t.key) && aligned(t.value) &&
                   aligned(t.cos) && aligned(t.sin);
  if (t.half % N == 0 && all) {
    launch_vectors<T, N>(key_cache, value_cache, t, stream);
  } else {
    launch_vectors<T, 1>(key_cache, value_cache, t, stream);
  }
}

}  // namespace

void rope_kv_write(const torch::stable::Tensor& key_cache, const torch::stable::Tensor& value_cache,
                   const torch::stable::Tensor& key, const torch::stable::Tensor& value,
                   const torch::stable::Tensor& cos, const torch::stable::Tensor& sin,
                   const torch::stable::Tensor& slots) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(key.dim() == 3 && slots.dim() == 1, "rope_kv_write: expected keys (tokens, kv_heads, head_dim)");
  const int64_t tokens = key.size(0), heads = key.size(1), half = key.size(2) / 2;
  STD_TORCH_CHECK(key.size(2) == 2 * half, "rope_kv_write: head_dim must be even");
  STD_TORCH_CHECK(tokens <= INT32_MAX && heads <= 65535, "rope_kv_write: tensor too large");
  STD_TORCH_CHECK(value.dim() == 3 && value.size(0) == tokens && value.size(1) == heads && value.size(2) == 2 * half,
                  "rope_kv_write: shapes of key and value differ");
  STD_TORCH_CHECK(slots.size(0) == tokens && slots.scalar_type() == ScalarType::Long,
                  "rope_kv_write: expected slots (tokens,) int64");
  for (const auto* t : {&key_cache, &value_cache}) {
    STD_TORCH_CHECK(t->dim() == 4 && t->size(2) == heads && t->size(3) == 2 * half,
                    "rope_kv_write: expected caches (blocks, block_size, kv_heads, head_dim)");
  }
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == tokens && t->size(1) == half,
                    "rope_kv_write: wrong shape of cos or sin");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "rope_kv_write: cos and sin are float32");
  }
  for (const auto* t : {&key_cache, &value_cache, &value}) {
    STD_TORCH_CHECK(t->scalar_type() == key.scalar_type(), "rope_kv_write: dtypes differ");
  }
  for (const auto* t : {&key_cache, &value_cache, &key, &value, &cos, &sin, &slots}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == key.get_device_index(),
                    "rope_kv_write: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0 || heads == 0 || half == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(key.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(key.get_device_index(), &raw_stream) == 0,
                  "rope_kv_write: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const Tokens<T> t{static_cast<const T*>(key.const_data_ptr()),
                      static_cast<const T*>(value.const_data_ptr()),
                      static_cast<const float*>(cos.const_data_ptr()),
                      static_cast<const float*>(sin.const_data_ptr()),
                      static_cast<const int64_t*>(slots.const_data_ptr()),
                      tokens,
                      heads,
                      half};
    launch(static_cast<T*>(key_cache.mutable_data_ptr()), static_cast<T*>(value_cache.mutable_data_ptr()), t, stream);
  };
  switch (key.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "rope_kv_write: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "rope_kv_write: ", cudaGetErrorString(error));
}
