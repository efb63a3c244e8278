// Per-head RMS norm and rotary embedding on CUDA: float16, bfloat16, float32, in place.
//
// A block has one token, or some heads of it. A head belongs to a group of lanes of a warp, each with one 16-byte
// vector of the first half and its partner in the second half: 8 lanes for 128 halves, 16 for 128 floats. So the head
// is read once, its sum of squares takes three or four shuffles, and what was read is rotated and written back from
// registers, with no shared memory and no barrier. With many tokens a group takes four heads, all loaded before the
// first is reduced, and keeps the token's cosines and sines for them. Value heads are never touched.
// Heads whose half is not a whole number of vectors take a warp per head, one element at a time.

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

template <typename T>
struct Pointers {
  T* qkv;
  const T* q_weight;
  const T* k_weight;
  const float* cos;
  const float* sin;
};

// Sizes of one token: query heads, query and key heads, all heads; elements of half a head.
struct Sizes {
  int heads, turned, all, half;
  float inv_dim, eps;
};

// R heads for each group of `group` lanes (a power of two, from half / N to 32); blockDim.x is whole warps, and a block
// has the R * blockDim.x / group heads from its blockIdx.y on.
template <typename T, int N, int R>
__global__ void __launch_bounds__(256) norm_rotate(Pointers<T> p, Sizes size, int group) {
  using Vec = Pack<T, N>;
  using Floats = Pack<float, 4>;  // a float vector is at most 16 bytes: 8 halves go with two of them
  const int64_t token = blockIdx.x;
  const int groups = blockDim.x / group;
  const int first_head = blockIdx.y * groups * R + threadIdx.x / group;
  const int i = threadIdx.x % group * N;
  const bool inside = i < size.half;
  T* const heads = p.qkv + token * size.all * 2 * size.half + i;

  Vec first[R]{}, second[R]{};
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int head = first_head + r * groups;
    if (!inside || head >= size.turned) continue;
    first[r] = *reinterpret_cast<const Vec*>(heads + head * 2 * size.half);
    second[r] = *reinterpret_cast<const Vec*>(heads + head * 2 * size.half + size.half);
  }
  Floats c[N / 4]{}, s[N / 4]{};
#pragma unroll
  for (int k = 0; k < N / 4; ++k) {
    if (!inside) continue;
    c[k] = reinterpret_cast<const Floats*>(p.cos + token * size.half + i)[k];
    s[k] = reinterpret_cast<const Floats*>(p.sin + token * size.half + i)[k];
  }

#pragma unroll
  for (int r = 0; r < R; ++r) {
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float a = to_float(first[r].v[n]), b = to_float(second[r].v[n]);
      sum += a * a + b * b;
    }
    // Every lane of the warp takes part, also those without a head: offsets below `group` stay within a group.
    for (int offset = group / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    const float scale = 1.0f / sqrtf(sum * size.inv_dim + size.eps);

    const int head = first_head + r * groups;
    if (!inside || head >= size.turned) continue;
    const T* weight = (head < size.heads ? p.q_weight : p.k_weight) + i;
    const Vec wa = *reinterpret_cast<const Vec*>(weight), wb = *reinterpret_cast<const Vec*>(weight + size.half);
    Vec turned_a, turned_b;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float a = to_float(first[r].v[n]) * scale * to_float(wa.v[n]);
      const float b = to_float(second[r].v[n]) * scale * to_float(wb.v[n]);
      const float cn = c[n / 4].v[n % 4], sn = s[n / 4].v[n % 4];
      turned_a.v[n] = from_float<T>(a * cn - b * sn);
      turned_b.v[n] = from_float<T>(b * cn + a * sn);
    }
    *reinterpret_cast<Vec*>(heads + head * 2 * size.half) = turned_a;
    *reinterpret_cast<Vec*>(heads + head * 2 * size.half + size.half) = turned_b;
  }
}

// A warp per head (threadIdx.y and the grid choose it), one element at a time.
template <typename T>
__global__ void __launch_bounds__(256) norm_rotate_any(Pointers<T> p, Sizes size) {
  const int64_t token = blockIdx.x;
  const int head = blockIdx.y * blockDim.y + threadIdx.y;
  if (head >= size.turned) return;  // a whole warp
  T* x = p.qkv + (token * size.all + head) * 2 * size.half;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < 2 * size.half; i += 32) sum += to_float(x[i]) * to_float(x[i]);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  const float scale = 1.0f / sqrtf(sum * size.inv_dim + size.eps);
  const T* weight = head < size.heads ? p.q_weight : p.k_weight;
  for (int i = threadIdx.x; i < size.half; i += 32) {
    const float a = to_float(x[i]) * scale * to_float(weight[i]);
    const float b = to_float(x[size.half + i]) * scale * to_float(weight[size.half + i]);
    const float c = p.cos[token * size.half + i], s = p.sin[token * size.half + i];
    x[i] = from_float<T>(a * c - b * s);
    x[size.half + i] = from_float<T>(b * c + a * s);
  }
}

template <typename T>
bool aligned(const Pointers<T>& p) {
  const auto bits = reinterpret_cast<uintptr_t>(p.qkv) | reinterpret_cast<uintptr_t>(p.q_weight) |
                    reinterpret_cast<uintptr_t>(p.k_weight) | reinterpret_cast<uintptr_t>(p.cos) |
                    reinterpret_cast<uintptr_t>(p.sin);
  return bits % 16 == 0;
}

template <typename T>
void launch(const Pointers<T>& p, int64_t tokens, const Sizes& size, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int vectors = size.half / N;
  if (size.half % N != 0 || vectors > 32 || !aligned(p)) {
    const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>((size.turned + 7) / 8));
    norm_rotate_any<T><<<grid, dim3(32, 8), 0, stream>>>(p, size);
    return;
  }
  int group = 1;
  while (group < vectors) group *= 2;
  // Four heads per group where there are tokens enough to fill the machine without the other three quarters.
  const bool many = tokens >= 1024;
  const int per_group = many ? 4 : 1;
  const int wanted = (size.turned + per_group - 1) / per_group * group;  // threads for all heads of a token
  const int threads = wanted >= 256 ? 256 : (wanted + 31) / 32 * 32;
  const int per_block = threads / group * per_group;
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>((size.turned + per_block - 1) / per_block));
  const auto kernel = many ? norm_rotate<T, N, 4> : norm_rotate<T, N, 1>;
  kernel<<<grid, threads, 0, stream>>>(p, size, group);
}

}  // namespace

void qk_norm_rope(const torch::stable::Tensor& qkv, const torch::stable::Tensor& q_weight,
                  const torch::stable::Tensor& k_weight, const torch::stable::Tensor& cos,
                  const torch::stable::Tensor& sin, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(qkv.dim() == 4 && qkv.size(1) > 2, "qk_norm_rope: expected (tokens, groups + 2, kv_heads, head_dim)");
  const int64_t tokens = qkv.size(0), kv_heads = qkv.size(2), heads = (qkv.size(1) - 2) * kv_heads;
  const int64_t half = qkv.size(3) / 2;
  STD_TORCH_CHECK(qkv.size(3) == 2 * half, "qk_norm_rope: head_dim must be even");
  STD_TORCH_CHECK(tokens <= INT32_MAX && heads + 2 * kv_heads <= 65535 && half <= 65535,
                  "qk_norm_rope: tensor too large");
  for (const auto* t : {&q_weight, &k_weight}) {
    STD_TORCH_CHECK(t->dim() == 1 && t->size(0) == 2 * half, "qk_norm_rope: expected weights of (head_dim,)");
    STD_TORCH_CHECK(t->scalar_type() == qkv.scalar_type(), "qk_norm_rope: dtypes of qkv and weights differ");
  }
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == tokens && t->size(1) == half,
                    "qk_norm_rope: expected cos and sin of (tokens, head_dim / 2)");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "qk_norm_rope: cos and sin are float32");
  }
  for (const auto* t : {&qkv, &q_weight, &k_weight, &cos, &sin}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == qkv.get_device_index(),
                    "qk_norm_rope: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0 || kv_heads == 0 || half == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(qkv.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(qkv.get_device_index(), &raw_stream) == 0,
                  "qk_norm_rope: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const Sizes size{static_cast<int>(heads),    static_cast<int>(heads + kv_heads),
                   static_cast<int>(heads + 2 * kv_heads), static_cast<int>(half),
                   1.0f / static_cast<float>(2 * half),    static_cast<float>(eps)};
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch<T>({static_cast<T*>(qkv.mutable_data_ptr()), static_cast<const T*>(q_weight.const_data_ptr()),
               static_cast<const T*>(k_weight.const_data_ptr()), static_cast<const float*>(cos.const_data_ptr()),
               static_cast<const float*>(sin.const_data_ptr())},
              tokens, size, stream);
  };
  switch (qkv.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "qk_norm_rope: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "qk_norm_rope: ", cudaGetErrorString(error));
}
