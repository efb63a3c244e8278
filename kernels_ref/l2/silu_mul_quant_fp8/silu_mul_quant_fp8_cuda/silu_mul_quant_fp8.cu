// SiLU gate and row-wise FP8 quantisation on CUDA: float16, bfloat16, float32 in, float8_e4m3fn and a scale out.
//
// A token is read from memory once: every thread keeps its share of the gated values (1, 2, 4 or 8 vectors) in
// registers as float32, the largest magnitude is reduced by warp shuffles and one pass through shared memory, and the
// token is quantised from the registers by the converting instruction of sm_89 and later, two values at a time. Gate
// and value are loaded 16 bytes at a time. Short rows get a warp each, four to a block, and never synchronise.
// Rows that are not whole vectors, or too long for registers, take a strided kernel that reads and computes twice.

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
// N float8 bytes of a vector, stored as one.
template <int N>
struct alignas(N) Bytes {
  __nv_fp8_storage_t v[N];
};

// Nearest float8_e4m3fn, ties to even; beyond 448 it is 448.
template <int N>
__device__ __forceinline__ Bytes<N> quantise(const float (&y)[N], float factor) {
  Bytes<N> result;
  if constexpr (N == 1) {
    result.v[0] = __nv_cvt_float_to_fp8(y[0] * factor, __NV_SATFINITE, __NV_E4M3);
  } else {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      const __nv_fp8x2_storage_t pair =
          __nv_cvt_float2_to_fp8x2(make_float2(y[n] * factor, y[n + 1] * factor), __NV_SATFINITE, __NV_E4M3);
      result.v[n] = static_cast<__nv_fp8_storage_t>(pair & 0xff);  // the first of the two is in the low byte
      result.v[n + 1] = static_cast<__nv_fp8_storage_t>(pair >> 8);
    }
  }
  return result;
}

// v / (1 + e^-v). With h = e^-|v| it is v / (1 + h), for negative v times h: nothing overflows.
__device__ __forceinline__ float silu(float v) {
  const float h = __expf(-fabsf(v));
  return __fdividef(v > 0.0f ? v : v * h, 1.0f + h);  // the divisor is between 1 and 2
}

template <typename T, int N>
__device__ __forceinline__ void gate(float (&y)[N], const Pack<T, N>& gates, const Pack<T, N>& values) {
#pragma unroll
  for (int n = 0; n < N; ++n) y[n] = silu(to_float(gates.v[n])) * to_float(values.v[n]);
}

template <int N>
__device__ __forceinline__ float largest_of(const float (&y)[N], float largest) {
#pragma unroll
  for (int n = 0; n < N; ++n) largest = fmaxf(largest, fabsf(y[n]));
  return largest;
}

// Largest over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then).
__device__ __forceinline__ float row_largest(float v) {
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

// What values are multiplied by, for a row whose largest magnitude is `largest`; one thread writes the scale.
__device__ __forceinline__ float make_scale(float* scale, int64_t row, float largest) {
  if (threadIdx.x == 0) scale[row] = largest / 448.0f;
  return largest > 0.0f ? 448.0f / largest : 0.0f;
}

// One row per threadIdx.y; half a row is `vectors` = dim / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(512) quantise_registers(float* __restrict__ scale, uint8_t* __restrict__ q,
                                                          const T* __restrict__ x, int64_t rows, int vectors) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const Vec* gates = reinterpret_cast<const Vec*>(x) + row * 2 * vectors;
  const Vec* values = gates + vectors;

  float y[VECS][N];
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    Vec g{}, v{};
    if (i < vectors) g = gates[i], v = values[i];
    gate(y[k], g, v);  // 0 for the padding
    largest = largest_of(y[k], largest);
  }
  const float factor = make_scale(scale, row, row_largest(largest));
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) reinterpret_cast<Bytes<N>*>(q)[row * vectors + i] = quantise(y[k], factor);
  }
}

// A block per row; N is 1 where rows are not whole vectors. Both passes compute the same values.
template <typename T, int N>
__global__ void __launch_bounds__(512) quantise_strided(float* __restrict__ scale, uint8_t* __restrict__ q,
                                                        const T* __restrict__ x, int64_t dim) {
  using Vec = Pack<T, N>;
  const int64_t row = blockIdx.x, vectors = dim / N;
  const Vec* gates = reinterpret_cast<const Vec*>(x + row * 2 * dim);
  const Vec* values = reinterpret_cast<const Vec*>(x + row * 2 * dim + dim);
  Bytes<N>* q_row = reinterpret_cast<Bytes<N>*>(q + row * dim);
  float y[N];
  float largest = 0.0f;
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec g = gates[i], v = values[i];
    gate(y, g, v);
    largest = largest_of(y, largest);
  }
  const float factor = make_scale(scale, row, row_largest(largest));
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec g = gates[i], v = values[i];
    gate(y, g, v);
    q_row[i] = quantise(y, factor);
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(float* scale, uint8_t* q, const T* x, int64_t rows, int64_t dim, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = dim / N;
  const bool whole = dim % N == 0 && aligned(q) && aligned(x);
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? quantise_strided<T, N> : quantise_strided<T, 1>;
    const unsigned threads = dim >= 512 ? 512 : whole_warps(dim);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(scale, q, x, dim);
    return;
  }
  // Four vectors per thread keep 64 bytes a thread on their way, and blocks of 128 to 512 threads, of which an SM has
  // many, hide one row's reduction behind other rows' loads. Only the longest rows have eight.
  const bool warp_per_row = vectors <= 128;
  const int vecs = vectors <= 32 ? 1 : vectors <= 64 ? 2 : vectors <= 2048 ? 4 : 8;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1   ? quantise_registers<T, 1>
                      : vecs == 2 ? quantise_registers<T, 2>
                      : vecs == 4 ? quantise_registers<T, 4>
                                  : quantise_registers<T, 8>;
  kernel<<<grid, block, 0, stream>>>(scale, q, x, rows, static_cast<int>(vectors));
}

}  // namespace

void silu_mul_quant_fp8(const torch::stable::Tensor& scale, const torch::stable::Tensor& q,
                        const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(scale.dim() == 2 && q.dim() == 2 && x.dim() == 2,
                  "silu_mul_quant_fp8: expected (tokens, 1), (tokens, dim) and (tokens, 2 * dim)");
  const int64_t tokens = q.size(0), dim = q.size(1);
  STD_TORCH_CHECK(scale.size(0) == tokens && scale.size(1) == 1 && x.size(0) == tokens && x.size(1) == 2 * dim,
                  "silu_mul_quant_fp8: shapes differ");
  STD_TORCH_CHECK(tokens <= INT32_MAX, "silu_mul_quant_fp8: too many tokens");
  STD_TORCH_CHECK(scale.scalar_type() == ScalarType::Float && q.scalar_type() == ScalarType::Float8_e4m3fn,
                  "silu_mul_quant_fp8: scale is float32 and q float8_e4m3fn");
  for (const auto* t : {&scale, &q, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "silu_mul_quant_fp8: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0 || dim == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "silu_mul_quant_fp8: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<float*>(scale.mutable_data_ptr()), static_cast<uint8_t*>(q.mutable_data_ptr()),
           static_cast<const T*>(x.const_data_ptr()), tokens, dim, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "silu_mul_quant_fp8: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "silu_mul_quant_fp8: ", cudaGetErrorString(error));
}
