// RMS norm of queries and keys on CUDA: float16, bfloat16, float32.
//
// Both tensors go in one launch, so that a short side (128 text keys beside thousands of queries) costs no tail of its
// own: the rows of k follow those of q in the grid. A row is read from memory once: every thread keeps its share (1, 2
// or 4 vectors of 16 bytes) in registers, the sum of squares is reduced in float32 by warp shuffles and one pass
// through shared memory, and the row is written from the registers. Weights are requested before the reduction, so
// their latency hides behind it. Short rows get a warp each, four to a block, and never synchronise.
// Rows that are not whole, aligned 16-byte vectors, or too long for registers, take a strided kernel that reads twice.

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

// Sum over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then).
__device__ __forceinline__ float row_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  if (blockDim.x == 32) return v;
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : 0.0f;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// One of the two tensors. Rows are `cols` elements.
template <typename T>
struct Side {
  T* out;
  const T* x;
  const T* weight;
  int64_t rows;
};

// One row per threadIdx.y; the row is `vectors` = cols / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(512) norm_registers(Side<T> q, Side<T> k, int vectors, float inv_cols, float eps) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= q.rows + k.rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const bool second = row >= q.rows;
  if (second) row -= q.rows;
  const Vec* __restrict__ x_row = reinterpret_cast<const Vec*>(second ? k.x : q.x) + row * vectors;
  const Vec* __restrict__ weight = reinterpret_cast<const Vec*>(second ? k.weight : q.weight);
  Vec* __restrict__ out_row = reinterpret_cast<Vec*>(second ? k.out : q.out) + row * vectors;

  Vec values[VECS]{}, weights[VECS]{};
#pragma unroll
  for (int i = 0; i < VECS; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at < vectors) values[i] = x_row[at];
  }
#pragma unroll
  for (int i = 0; i < VECS; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    if (at < vectors) weights[i] = weight[at];
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < VECS; ++i) {
#pragma unroll
    for (int n = 0; n < N; ++n) sum += to_float(values[i].v[n]) * to_float(values[i].v[n]);
  }
  const float scale = 1.0f / sqrtf(row_sum(sum) * inv_cols + eps);
#pragma unroll
  for (int i = 0; i < VECS; ++i) {
    const int at = threadIdx.x + i * blockDim.x;
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n)
      result.v[n] = from_float<T>(to_float(values[i].v[n]) * scale * to_float(weights[i].v[n]));
    if (at < vectors) out_row[at] = result;
  }
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(1024) norm_strided(Side<T> q, Side<T> k, int64_t cols, float inv_cols, float eps) {
  using Vec = Pack<T, N>;
  const bool second = blockIdx.x >= q.rows;
  const int64_t row = second ? blockIdx.x - q.rows : blockIdx.x;
  const Vec* __restrict__ x_row = reinterpret_cast<const Vec*>((second ? k.x : q.x) + row * cols);
  const Vec* __restrict__ weight = reinterpret_cast<const Vec*>(second ? k.weight : q.weight);
  Vec* __restrict__ out_row = reinterpret_cast<Vec*>((second ? k.out : q.out) + row * cols);
  const int64_t vectors = cols / N;
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
#pragma unroll
    for (int n = 0; n < N; ++n) sum += to_float(v.v[n]) * to_float(v.v[n]);
  }
  const float scale = 1.0f / sqrtf(row_sum(sum) * inv_cols + eps);
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i], w = weight[i];
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) result.v[n] = from_float<T>(to_float(v.v[n]) * scale * to_float(w.v[n]));
    out_row[i] = result;
  }
}

template <typename T>
bool aligned(const Side<T>& s) {
  const auto bits = reinterpret_cast<uintptr_t>(s.out) | reinterpret_cast<uintptr_t>(s.x);
  return ((bits | reinterpret_cast<uintptr_t>(s.weight)) & 15) == 0;
}
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(const Side<T>& q, const Side<T>& k, int64_t cols, float eps, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = cols / N, rows = q.rows + k.rows;
  const float inv_cols = 1.0f / static_cast<float>(cols);
  const bool whole = cols % N == 0 && aligned(q) && aligned(k);
  if (!whole || vectors > 2048) {
    const auto kernel = whole ? norm_strided<T, N> : norm_strided<T, 1>;
    const unsigned threads = cols >= 1024 ? 1024 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(q, k, cols, inv_cols, eps);
    return;
  }
  // Few vectors per thread keeps many threads loading; where 512 threads are not enough, 2 then 4 vectors each.
  const bool warp_per_row = vectors <= 64;
  const int vecs = warp_per_row ? (vectors <= 32 ? 1 : 2) : vectors <= 512 ? 1 : vectors <= 1024 ? 2 : 4;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1 ? norm_registers<T, 1> : vecs == 2 ? norm_registers<T, 2> : norm_registers<T, 4>;
  kernel<<<grid, block, 0, stream>>>(q, k, static_cast<int>(vectors), inv_cols, eps);
}

template <typename T>
Side<T> side(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight) {
  return {static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
          static_cast<const T*>(weight.const_data_ptr()), x.size(0) * x.size(1)};
}

}  // namespace

void ltx_rms_norm(const torch::stable::Tensor& q_out, const torch::stable::Tensor& k_out,
                  const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                  const torch::stable::Tensor& q_weight, const torch::stable::Tensor& k_weight, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q.dim() == 3 && q_out.dim() == 3 && k.dim() == 3 && k_out.dim() == 3 && q_weight.dim() == 1 &&
                      k_weight.dim() == 1,
                  "ltx_rms_norm: expected (batch, tokens, hidden) and (hidden,)");
  const int64_t cols = q.size(2);
  for (int axis = 0; axis < 3; ++axis) {
    STD_TORCH_CHECK(q_out.size(axis) == q.size(axis) && k_out.size(axis) == k.size(axis),
                    "ltx_rms_norm: shapes of input and output differ");
  }
  STD_TORCH_CHECK(k.size(0) == q.size(0) && k.size(2) == cols && q_weight.size(0) == cols && k_weight.size(0) == cols,
                  "ltx_rms_norm: shapes differ");
  STD_TORCH_CHECK(q.size(0) * (q.size(1) + k.size(1)) <= INT32_MAX, "ltx_rms_norm: too many tokens");
  for (const auto* t : {&q_out, &k_out, &q, &k, &q_weight, &k_weight}) {
    STD_TORCH_CHECK(t->scalar_type() == q.scalar_type(), "ltx_rms_norm: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == q.get_device_index(),
                    "ltx_rms_norm: expected contiguous tensors on one CUDA device");
  }
  if (q.size(0) * (q.size(1) + k.size(1)) == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(q.get_device_index(), &raw_stream) == 0,
                  "ltx_rms_norm: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(side<T>(q_out, q, q_weight), side<T>(k_out, k, k_weight), cols, static_cast<float>(eps), stream);
  };
  switch (q.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "ltx_rms_norm: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "ltx_rms_norm: ", cudaGetErrorString(error));
}
