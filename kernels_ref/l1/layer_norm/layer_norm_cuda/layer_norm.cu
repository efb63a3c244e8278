// Layer norm on CUDA: float16, bfloat16, float32.
//
// Bound by memory. A row is read from memory once: every thread keeps its share (up to 4 vectors of 16 bytes) in
// registers. The mean is reduced first and the squares of the centred values second (no cancellation), by warp
// shuffles. Rows of up to 128 vectors get a warp each, four to a block, and never synchronise; longer ones get a block.
// Weight and bias are fetched late: they come from L1 or L2, and the registers are worth more as loads in flight.
// Rows that are not whole vectors, or too long for registers, take a strided kernel that reads the row three times.

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
// `partial` holds 32 floats of shared memory; two calls in a row need two of them.
__device__ __forceinline__ float row_sum(float v, float* partial) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  if (blockDim.x == 32) return v;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : 0.0f;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// One row per threadIdx.y; the row is `vectors` = cols / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(1024) norm_registers(T* __restrict__ out, const T* __restrict__ x,
                                                       const T* __restrict__ weight, const T* __restrict__ bias,
                                                       int64_t rows, int vectors, float inv_cols, float eps) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const Vec* x_row = reinterpret_cast<const Vec*>(x) + row * vectors;
  Vec* out_row = reinterpret_cast<Vec*>(out) + row * vectors;
  __shared__ float partial_sum[32], partial_squares[32];

  Vec values[VECS]{};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) values[k] = x_row[i];
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) sum += to_float(values[k].v[n]);
  }
  const float mean = row_sum(sum, partial_sum) * inv_cols;

  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const bool inside = static_cast<int>(threadIdx.x + k * blockDim.x) < vectors;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float d = inside ? to_float(values[k].v[n]) - mean : 0.0f;
      squares += d * d;
    }
  }
  const float scale = 1.0f / sqrtf(row_sum(squares, partial_squares) * inv_cols + eps);

#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;  // and so are the rest of this thread's
    const Vec w = reinterpret_cast<const Vec*>(weight)[i], b = reinterpret_cast<const Vec*>(bias)[i];
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n)
      result.v[n] = from_float<T>((to_float(values[k].v[n]) - mean) * scale * to_float(w.v[n]) + to_float(b.v[n]));
    out_row[i] = result;
  }
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(512) norm_strided(T* __restrict__ out, const T* __restrict__ x,
                                                    const T* __restrict__ weight, const T* __restrict__ bias,
                                                    int64_t cols, float inv_cols, float eps) {
  using Vec = Pack<T, N>;
  const Vec* x_row = reinterpret_cast<const Vec*>(x + blockIdx.x * cols);
  Vec* out_row = reinterpret_cast<Vec*>(out + blockIdx.x * cols);
  const int64_t vectors = cols / N;
  __shared__ float partial_sum[32], partial_squares[32];
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
#pragma unroll
    for (int n = 0; n < N; ++n) sum += to_float(v.v[n]);
  }
  const float mean = row_sum(sum, partial_sum) * inv_cols;
  float squares = 0.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (to_float(v.v[n]) - mean) * (to_float(v.v[n]) - mean);
  }
  const float scale = 1.0f / sqrtf(row_sum(squares, partial_squares) * inv_cols + eps);
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i], w = reinterpret_cast<const Vec*>(weight)[i], b = reinterpret_cast<const Vec*>(bias)[i];
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n)
      result.v[n] = from_float<T>((to_float(v.v[n]) - mean) * scale * to_float(w.v[n]) + to_float(b.v[n]));
    out_row[i] = result;
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(T* out, const T* x, const T* weight, const T* bias, int64_t rows, int64_t cols, float eps,
            cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = cols / N;
  const float inv_cols = 1.0f / static_cast<float>(cols);
  const bool whole = cols % N == 0 && aligned(out) && aligned(x) && aligned(weight) && aligned(bias);
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? norm_strided<T, N> : norm_strided<T, 1>;
    const unsigned threads = cols >= 512 ? 512 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(out, x, weight, bias, cols, inv_cols, eps);
    return;
  }
  const bool warp_per_row = vectors <= 128;
  const int vecs = vectors <= 32 ? 1 : vectors <= 64 ? 2 : 4;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1   ? norm_registers<T, 1>
                      : vecs == 2 ? norm_registers<T, 2>
                                  : norm_registers<T, 4>;
  kernel<<<grid, block, 0, stream>>>(out, x, weight, bias, rows, static_cast<int>(vectors), inv_cols, eps);
}

}  // namespace

void layer_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && weight.dim() == 1 && bias.dim() == 1,
                  "layer_norm: expected (rows, cols) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols && weight.size(0) == cols && bias.size(0) == cols,
                  "layer_norm: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX, "layer_norm: too many rows");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "layer_norm: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "layer_norm: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "layer_norm: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(weight.const_data_ptr()), static_cast<const T*>(bias.const_data_ptr()), rows, cols,
           static_cast<float>(eps), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "layer_norm: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "layer_norm: ", cudaGetErrorString(error));
}
