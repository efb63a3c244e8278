// Dynamic fp8 (e4m3) quantisation of rows on CUDA: float16, bfloat16, float32.
//
// A row is read from memory once: every thread keeps its share (1, 2, 4 or 8 vectors of 16 bytes) in registers, the
// largest absolute value is reduced by warp shuffles and one pass through shared memory, and the row is quantised from
// the registers, 4 or 8 bytes a store. Short rows get a warp each, four to a block, and never synchronise.
// Rows too long for registers, or not a whole number of vectors, take a strided kernel that reads the row twice
// (the second time mostly from L2).

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
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

// Largest value over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then).
__device__ __forceinline__ float row_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  if (blockDim.x == 32) return v;
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : 0.0f;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

// The codes of two elements, the first in the low byte; one instruction on sm_89 and later, saturating.
__device__ __forceinline__ uint32_t two_codes(float low, float high, float factor) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low * factor, high * factor), __NV_SATFINITE, __NV_E4M3);
}

// One store for all codes of a vector: the bytes are put together in words first.
template <typename T, int N>
__device__ __forceinline__ void store_codes(uint8_t* q, const Pack<T, N>& x, float factor) {
  if constexpr (N == 1) {
    *q = static_cast<uint8_t>(two_codes(to_float(x.v[0]), 0.0f, factor));
  } else {
    uint32_t words[N / 4];
#pragma unroll
    for (int w = 0; w < N / 4; ++w) {
      words[w] = two_codes(to_float(x.v[4 * w]), to_float(x.v[4 * w + 1]), factor) |
                 two_codes(to_float(x.v[4 * w + 2]), to_float(x.v[4 * w + 3]), factor) << 16;
    }
    if constexpr (N == 8) {
      *reinterpret_cast<uint2*>(q) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint32_t*>(q) = words[0];
    }
  }
}

constexpr float kSmallest = 1e-12f;

// One row per threadIdx.y; the row is `vectors` = cols / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(512) quantise_registers(uint8_t* __restrict__ q, float* __restrict__ scale,
                                                          const T* __restrict__ x, int64_t rows, int vectors) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const Vec* x_row = reinterpret_cast<const Vec*>(x) + row * vectors;
  uint8_t* q_row = q + row * vectors * N;

  Vec values[VECS]{};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) values[k] = x_row[i];
  }
  float max = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) max = fmaxf(max, fabsf(to_float(values[k].v[n])));
  }
  max = fmaxf(row_max(max), kSmallest);
  const float factor = 448.0f / max;
  if (threadIdx.x == 0) scale[row] = max / 448.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) store_codes<T, N>(q_row + i * N, values[k], factor);
  }
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(1024) quantise_strided(uint8_t* __restrict__ q, float* __restrict__ scale,
                                                         const T* __restrict__ x, int64_t cols) {
  using Vec = Pack<T, N>;
  const Vec* x_row = reinterpret_cast<const Vec*>(x + blockIdx.x * cols);
  uint8_t* q_row = q + blockIdx.x * cols;
  const int64_t vectors = cols / N;
  float max = 0.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
#pragma unroll
    for (int n = 0; n < N; ++n) max = fmaxf(max, fabsf(to_float(v.v[n])));
  }
  max = fmaxf(row_max(max), kSmallest);
  const float factor = 448.0f / max;
  if (threadIdx.x == 0) scale[blockIdx.x] = max / 448.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
    store_codes<T, N>(q_row + i * N, v, factor);
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(uint8_t* q, float* scale, const T* x, int64_t rows, int64_t cols, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = cols / N;
  const bool whole = cols % N == 0 && aligned(q) && aligned(x);
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? quantise_strided<T, N> : quantise_strided<T, 1>;
    const unsigned threads = cols >= 1024 ? 1024 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(q, scale, x, cols);
    return;
  }
  // Few vectors per thread keeps many threads loading; where 512 threads are not enough, up to 8 vectors each.
  const bool warp_per_row = vectors <= 64;
  const int vecs = warp_per_row      ? (vectors <= 32 ? 1 : 2)
                   : vectors <= 512  ? 1
                   : vectors <= 1024 ? 2
                   : vectors <= 2048 ? 4
                                     : 8;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1   ? quantise_registers<T, 1>
                      : vecs == 2 ? quantise_registers<T, 2>
                      : vecs == 4 ? quantise_registers<T, 4>
                                  : quantise_registers<T, 8>;
  kernel<<<grid, block, 0, stream>>>(q, scale, x, rows, static_cast<int>(vectors));
}

}  // namespace

void quantize_fp8(const torch::stable::Tensor& q, const torch::stable::Tensor& scale,
                   const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && q.dim() == 2 && scale.dim() == 1, "quantize_fp8: expected (rows, cols) and (rows,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(q.size(0) == rows && q.size(1) == cols && scale.size(0) == rows, "quantize_fp8: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX, "quantize_fp8: too many rows");
  STD_TORCH_CHECK(q.scalar_type() == ScalarType::Float8_e4m3fn, "quantize_fp8: q is float8_e4m3fn");
  STD_TORCH_CHECK(scale.scalar_type() == ScalarType::Float, "quantize_fp8: scale is float32");
  for (const auto* t : {&q, &scale, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "quantize_fp8: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "quantize_fp8: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<uint8_t*>(q.mutable_data_ptr()), static_cast<float*>(scale.mutable_data_ptr()),
           static_cast<const T*>(x.const_data_ptr()), rows, cols, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "quantize_fp8: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "quantize_fp8: ", cudaGetErrorString(error));
}
