// Softmax on CUDA: float16, bfloat16, float32.
//
// A row is read from memory once: every thread keeps its share (1, 2 or 4 vectors of 16 bytes) in registers as float32,
// maximum and sum are reduced by warp shuffles and one pass through shared memory each, and the row is written from
// the registers. Short rows get a warp each, four to a block, and never synchronise.
// Vocabularies stay in the registers of a cluster of 2 to 8 blocks, in the storage dtype: maximum and sum go together
// through distributed shared memory once. Still longer rows, or not a whole number of vectors, take an online softmax:
// one reading for maximum and sum together, a second one (mostly from L2) to write.

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>
#include <cstring>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

namespace cg = cooperative_groups;

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

// Reduces over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then).
// `partial` holds 32 floats of shared memory; two calls in a row need two of them.
template <typename Op>
__device__ __forceinline__ float row_reduce(float v, float identity, float* partial, Op op) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, offset));
  if (blockDim.x == 32) return v;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : identity;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// One row per threadIdx.y; the row is `vectors` = cols / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(1024) softmax_registers(T* __restrict__ out, const T* __restrict__ x, int64_t rows,
                                                          int vectors) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const Vec* x_row = reinterpret_cast<const Vec*>(x) + row * vectors;
  Vec* out_row = reinterpret_cast<Vec*>(out) + row * vectors;
  __shared__ float partial_max[32], partial_sum[32];

  float values[VECS][N];
  float max = -INFINITY;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    Vec v{};
    if (i < vectors) v = x_row[i];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      values[k][n] = i < vectors ? to_float(v.v[n]) : -INFINITY;
      max = fmaxf(max, values[k][n]);
    }
  }
  max = row_reduce(max, -INFINITY, partial_max, Max{});

  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      values[k][n] = __expf(values[k][n] - max);  // 0 for the padding
      sum += values[k][n];
    }
  }
  const float scale = 1.0f / row_reduce(sum, 0.0f, partial_sum, Add{});

#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) result.v[n] = from_float<T>(values[k][n] * scale);
    if (i < vectors) out_row[i] = result;
  }
}

// Of any part of a row: its maximum and the sum of exp(v - max). {-FLT_MAX, 0} is of no elements.
struct Partial {
  float max, sum;
};
// Over a warp, the same in every lane.
__device__ __forceinline__ Partial warp_reduce(Partial p) {
  float max = p.max;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, offset));
  float sum = p.sum * __expf(p.max - max);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return {max, sum};
}
template <typename T>
__device__ __forceinline__ Pack<T, 16 / sizeof(T)> taken_apart(const int4& words) {
  Pack<T, 16 / sizeof(T)> v;
  memcpy(&v, &words, sizeof(v));
  return v;
}

// A cluster of gridDim.y blocks per row of `vectors` vectors, at most VECS * blockDim.x in each block.
template <typename T, int VECS>
__global__ void __launch_bounds__(1024) softmax_clusters(int4* __restrict__ out, const int4* __restrict__ x,
                                                         int vectors) {
  constexpr int N = 16 / sizeof(T);
  const int64_t start = static_cast<int64_t>(blockIdx.x) * vectors;
  const int first = blockIdx.y * VECS * blockDim.x + threadIdx.x, step = blockDim.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  int4 words[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = first + k * step;
    words[k] = i < vectors ? __ldcs(x + start + i) : int4{};
  }
  Partial part{-FLT_MAX, 0.0f};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    // Elements of 16 bits would be taken apart where they are loaded, and every load waited for before the next.
    asm volatile("" : "+r"(words[k].x), "+r"(words[k].y), "+r"(words[k].z), "+r"(words[k].w));
    if (first + k * step >= vectors) continue;
    const auto v = taken_apart<T>(words[k]);
#pragma unroll
    for (int n = 0; n < N; ++n) part.max = fmaxf(part.max, to_float(v.v[n]));
  }
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    if (first + k * step >= vectors) continue;
    const auto v = taken_apart<T>(words[k]);
#pragma unroll
    for (int n = 0; n < N; ++n) part.sum += __expf(to_float(v.v[n]) - part.max);
  }
  __shared__ Partial of_warp[32], of_block;
  part = warp_reduce(part);
  if (lane == 0) of_warp[warp] = part;
  __syncthreads();
  part = warp_reduce(lane < warps ? of_warp[lane] : Partial{-FLT_MAX, 0.0f});
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) of_block = part;
  cluster.sync();
  const bool have = lane < static_cast<int>(gridDim.y);
  part = have ? *cluster.map_shared_rank(&of_block, have ? lane : 0) : Partial{-FLT_MAX, 0.0f};
  cluster.barrier_arrive();  // no block may end while another one reads its shared memory
  part = warp_reduce(part);
  const float scale = 1.0f / part.sum;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    auto v = taken_apart<T>(words[k]);
#pragma unroll
    for (int n = 0; n < N; ++n) v.v[n] = from_float<T>(__expf(to_float(v.v[n]) - part.max) * scale);
    int4 result;
    memcpy(&result, &v, sizeof(result));
    if (first + k * step < vectors) __stcs(out + start + first + k * step, result);
  }
  cluster.barrier_wait();
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(1024) softmax_online(T* __restrict__ out, const T* __restrict__ x, int64_t cols) {
  using Vec = Pack<T, N>;
  const Vec* x_row = reinterpret_cast<const Vec*>(x + blockIdx.x * cols);
  Vec* out_row = reinterpret_cast<Vec*>(out + blockIdx.x * cols);
  const int64_t vectors = cols / N;
  __shared__ float partial_max[32], partial_sum[32];

  // The sum is relative to this thread's own maximum so far, and is rescaled when the maximum grows.
  float own_max = -INFINITY, sum = 0.0f;
  const auto look_at = [&](const Vec& v) {
    float vector_max = own_max;
#pragma unroll
    for (int n = 0; n < N; ++n) vector_max = fmaxf(vector_max, to_float(v.v[n]));
    sum *= __expf(own_max - vector_max);
    own_max = vector_max;
#pragma unroll
    for (int n = 0; n < N; ++n) sum += __expf(to_float(v.v[n]) - own_max);
  };
  // Without a test in front of them the loads all start before the first is waited for.
  constexpr int FLIGHT = 4;
  int64_t i = threadIdx.x;
  for (; i + (FLIGHT - 1) * blockDim.x < vectors; i += FLIGHT * blockDim.x) {
    Vec v[FLIGHT];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) v[k] = x_row[i + k * blockDim.x];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) look_at(v[k]);
  }
  for (; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
    look_at(v);
  }
  const float max = row_reduce(own_max, -INFINITY, partial_max, Max{});
  sum *= __expf(own_max - max);  // 0 * 0 for a thread without elements
  const float scale = 1.0f / row_reduce(sum, 0.0f, partial_sum, Add{});

  const auto replace = [&](Vec v, int64_t at) {
#pragma unroll
    for (int n = 0; n < N; ++n) v.v[n] = from_float<T>(__expf(to_float(v.v[n]) - max) * scale);
    out_row[at] = v;
  };
  i = threadIdx.x;
  for (; i + (FLIGHT - 1) * blockDim.x < vectors; i += FLIGHT * blockDim.x) {
    Vec v[FLIGHT];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) v[k] = x_row[i + k * blockDim.x];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) replace(v[k], i + k * blockDim.x);
  }
  for (; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
    replace(v, i);
  }
}

// vectors: of a row, at most 8 * 1024 * 4.
template <typename T>
void launch_clusters(T* out, const T* x, int64_t rows, int vectors, cudaStream_t stream) {
  constexpr int kVecs = 4;
  // Blocks of 512 threads, where 8 of them are enough, so that two fit an SM.
  const int parts = vectors <= 4096 ? 2 : vectors <= 8192 ? 4 : 8, share = (vectors + parts - 1) / parts;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(parts));
  config.blockDim = dim3(static_cast<unsigned>(((share + kVecs - 1) / kVecs + 31) / 32 * 32));
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = attribute.val.clusterDim.z = 1;
  attribute.val.clusterDim.y = static_cast<unsigned>(parts);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, softmax_clusters<T, kVecs>, reinterpret_cast<int4*>(out),
                                               reinterpret_cast<const int4*>(x), vectors);
  STD_TORCH_CHECK(error == cudaSuccess, "softmax: ", cudaGetErrorString(error));
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(T* out, const T* x, int64_t rows, int64_t cols, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = cols / N;
  const bool whole = cols % N == 0 && aligned(out) && aligned(x);
  if (whole && vectors > 2048 && vectors <= 8 * 1024 * 4) {
    return launch_clusters<T>(out, x, rows, static_cast<int>(vectors), stream);
  }
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? softmax_online<T, N> : softmax_online<T, 1>;
    const unsigned threads = cols >= 1024 ? 1024 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(out, x, cols);
    return;
  }
  // Few vectors per thread keeps many threads loading; above 512 threads a block, 2 then 4 vectors each.
  const bool warp_per_row = vectors <= 64;
  const int vecs = warp_per_row ? (vectors <= 32 ? 1 : 2) : vectors <= 512 ? 1 : vectors <= 1024 ? 2 : 4;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1   ? softmax_registers<T, 1>
                      : vecs == 2 ? softmax_registers<T, 2>
                                  : softmax_registers<T, 4>;
  kernel<<<grid, block, 0, stream>>>(out, x, rows, static_cast<int>(vectors));
}

}  // namespace

void softmax(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "softmax: expected (rows, cols)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols, "softmax: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX, "softmax: too many rows");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "softmax: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "softmax: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "softmax: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()), rows, cols, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "softmax: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "softmax: ", cudaGetErrorString(error));
}
