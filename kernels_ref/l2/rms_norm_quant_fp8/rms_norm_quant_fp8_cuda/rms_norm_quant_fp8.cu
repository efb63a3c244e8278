// RMS norm and dynamic fp8 (e4m3) quantisation of rows on CUDA: float16, bfloat16, float32.
//
// A row is read from memory once: every thread keeps its share (1, 2, 4 or 8 vectors of 16 bytes, mostly 4) and the weights for
// it in registers. The sum of squares and the largest |x * weight| are reduced together, by warp shuffles and one pass
// through shared memory: the norm multiplies a whole row, so it need not be known for the maximum. The row is quantised
// from the registers, 4 or 8 bytes a store. Short rows get a warp each, four to a block, and never synchronise.
// Rows too long for registers, or not a whole number of vectors, take a strided kernel that reads the row twice
// (the second time mostly from L2).

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Vectors of 16 bytes stay words until they are used: of bfloat16 that is taken apart each would hold a register.
template <typename T, int N>
using Words = std::conditional_t<N * sizeof(T) == 16, int4, Pack<T, N>>;
template <typename T, int N>
__device__ __forceinline__ void widen(const Words<T, N>& words, float (&values)[N]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N == 8) {
    const int parts[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int n = 0; n < N; ++n) values[n] = __int_as_float(n % 2 == 0 ? parts[n / 2] << 16 : parts[n / 2] & 0xffff0000);
  } else {
    Pack<T, N> elements;
    memcpy(&elements, &words, sizeof(elements));
#pragma unroll
    for (int n = 0; n < N; ++n) values[n] = to_float(elements.v[n]);
  }
}

// Of one row, or a part of it: the sum of x^2 and the largest |x * weight|.
struct RowFacts {
  float squares, max;
};
__device__ __forceinline__ RowFacts warp_reduce(RowFacts f) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    f.squares += __shfl_xor_sync(0xffffffffu, f.squares, offset);
    f.max = fmaxf(f.max, __shfl_xor_sync(0xffffffffu, f.max, offset));
  }
  return f;
}
// Over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then).
__device__ __forceinline__ RowFacts row_reduce(RowFacts f) {
  f = warp_reduce(f);
  if (blockDim.x == 32) return f;
  __shared__ RowFacts partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = f;
  __syncthreads();
  return warp_reduce(lane < warps ? partial[lane] : RowFacts{0.0f, 0.0f});
}
template <typename T, int N>
__device__ __forceinline__ void look_at(RowFacts& f, const Words<T, N>& x, const Words<T, N>& weight) {
  float v[N], w[N];
  widen<T, N>(x, v);
  widen<T, N>(weight, w);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    f.squares += v[n] * v[n];
    f.max = fmaxf(f.max, fabsf(v[n] * w[n]));
  }
}

// What x * weight is multiplied with before rounding, and the scale.
struct Scaling {
  float factor, scale;
};
__device__ __forceinline__ Scaling scaling_of(RowFacts f, float inv_cols, float eps) {
  const float inv_rms = 1.0f / sqrtf(f.squares * inv_cols + eps);
  const float max = fmaxf(f.max * inv_rms, 1e-12f);
  return {inv_rms * (448.0f / max), max / 448.0f};
}

// The codes of two elements, the first in the low byte; one instruction on sm_89 and later, saturating.
__device__ __forceinline__ uint32_t two_codes(float low, float high, float factor) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low * factor, high * factor), __NV_SATFINITE, __NV_E4M3);
}

// One store for all codes of a vector: the bytes are put together in words first.
template <typename T, int N>
__device__ __forceinline__ void store_codes(uint8_t* q, const Words<T, N>& x, const Words<T, N>& weight, float factor) {
  float v[N], w[N];
  widen<T, N>(x, v);
  widen<T, N>(weight, w);
#pragma unroll
  for (int n = 0; n < N; ++n) v[n] *= w[n];
  if constexpr (N == 1) {
    *q = static_cast<uint8_t>(two_codes(v[0], 0.0f, factor));
  } else {
    uint32_t words[N / 4];
#pragma unroll
    for (int w = 0; w < N / 4; ++w) {
      words[w] = two_codes(v[4 * w], v[4 * w + 1], factor) | two_codes(v[4 * w + 2], v[4 * w + 3], factor) << 16;
    }
    if constexpr (N == 8) {
      *reinterpret_cast<uint2*>(q) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint32_t*>(q) = words[0];
    }
  }
}

// One row per threadIdx.y; the row is `vectors` = cols / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(512) quantise_registers(uint8_t* __restrict__ q, float* __restrict__ scale,
                                                          const T* __restrict__ x, const T* __restrict__ weight,
                                                          int64_t rows, int vectors, float inv_cols, float eps) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Words<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const Vec* x_row = reinterpret_cast<const Vec*>(x) + row * vectors;
  uint8_t* q_row = q + row * vectors * N;

  Vec values[VECS]{}, weights[VECS]{};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) values[k] = x_row[i];
    if (i < vectors) weights[k] = reinterpret_cast<const Vec*>(weight)[i];
  }
  RowFacts facts{0.0f, 0.0f};
#pragma unroll
  for (int k = 0; k < VECS; ++k) look_at<T, N>(facts, values[k], weights[k]);
  const Scaling scaling = scaling_of(row_reduce(facts), inv_cols, eps);
  if (threadIdx.x == 0) scale[row] = scaling.scale;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {  // or the compiler would keep what it widened
    asm volatile("" : "+r"(values[k].x), "+r"(values[k].y), "+r"(values[k].z), "+r"(values[k].w));
    asm volatile("" : "+r"(weights[k].x), "+r"(weights[k].y), "+r"(weights[k].z), "+r"(weights[k].w));
  }
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) store_codes<T, N>(q_row + i * N, values[k], weights[k], scaling.factor);
  }
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(1024) quantise_strided(uint8_t* __restrict__ q, float* __restrict__ scale,
                                                         const T* __restrict__ x, const T* __restrict__ weight,
                                                         int64_t cols, float inv_cols, float eps) {
  using Vec = Words<T, N>;
  const Vec* x_row = reinterpret_cast<const Vec*>(x + blockIdx.x * cols);
  const Vec* weights = reinterpret_cast<const Vec*>(weight);
  uint8_t* q_row = q + blockIdx.x * cols;
  const int64_t vectors = cols / N;
  RowFacts facts{0.0f, 0.0f};
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i], w = weights[i];
    look_at<T, N>(facts, v, w);
  }
  const Scaling scaling = scaling_of(row_reduce(facts), inv_cols, eps);
  if (threadIdx.x == 0) scale[blockIdx.x] = scaling.scale;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i], w = weights[i];
    store_codes<T, N>(q_row + i * N, v, w, scaling.factor);
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(uint8_t* q, float* scale, const T* x, const T* weight, int64_t rows, int64_t cols, float eps,
            cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = cols / N;
  const float inv_cols = 1.0f / static_cast<float>(cols);
  const bool whole = cols % N == 0 && aligned(q) && aligned(x) && aligned(weight);
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? quantise_strided<T, N> : quantise_strided<T, 1>;
    const unsigned threads = cols >= 1024 ? 1024 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(q, scale, x, weight, cols, inv_cols, eps);
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
  kernel<<<grid, block, 0, stream>>>(q, scale, x, weight, rows, static_cast<int>(vectors), inv_cols, eps);
}

}  // namespace

void rms_norm_quant_fp8(const torch::stable::Tensor& q, const torch::stable::Tensor& scale,
                        const torch::stable::Tensor& x, const torch::stable::Tensor& weight, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && q.dim() == 2 && scale.dim() == 1 && weight.dim() == 1,
                  "rms_norm_quant_fp8: expected (rows, cols), (rows,) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(q.size(0) == rows && q.size(1) == cols && scale.size(0) == rows && weight.size(0) == cols,
                  "rms_norm_quant_fp8: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX, "rms_norm_quant_fp8: too many rows");
  STD_TORCH_CHECK(q.scalar_type() == ScalarType::Float8_e4m3fn, "rms_norm_quant_fp8: q is float8_e4m3fn");
  STD_TORCH_CHECK(scale.scalar_type() == ScalarType::Float, "rms_norm_quant_fp8: scale is float32");
  STD_TORCH_CHECK(x.scalar_type() == weight.scalar_type(), "rms_norm_quant_fp8: dtypes of x and weight differ");
  for (const auto* t : {&q, &scale, &x, &weight}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "rms_norm_quant_fp8: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "rms_norm_quant_fp8: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<uint8_t*>(q.mutable_data_ptr()), static_cast<float*>(scale.mutable_data_ptr()),
           static_cast<const T*>(x.const_data_ptr()), static_cast<const T*>(weight.const_data_ptr()), rows, cols,
           static_cast<float>(eps), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "rms_norm_quant_fp8: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "rms_norm_quant_fp8: ", cudaGetErrorString(error));
}
