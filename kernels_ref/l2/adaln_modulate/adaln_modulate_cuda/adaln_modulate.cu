// Layer norm with a scale and a shift per sample on CUDA: float16, bfloat16, float32.
//
// Bound by memory. A row is read from memory once: every thread keeps its share (up to 6 vectors of 16 bytes) in
// registers. The mean is reduced first and the squares of the centred values second (no cancellation), by warp
// shuffles. Rows of up to 192 vectors get a warp each, four to a block, and never synchronise; longer ones get a block,
// with 3 or 4 vectors a thread, whichever leaves fewer of its places empty.
// Shift and scale of the sample are fetched late: they come from L1 or L2, and the registers are worth more as loads in
// flight. Rows that are not whole vectors, or too long for registers, take a strided kernel that reads the row three
// times.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
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
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) { return v; }
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

// A vector of 16 bytes as it lies in memory, and as float32.
template <typename T>
__device__ __forceinline__ void widen(const int4& words, float (&values)[16 / sizeof(T)]) {
  const int parts[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      values[i] = __int_as_float(parts[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      values[2 * i] = __int_as_float(parts[i] << 16);
      values[2 * i + 1] = __int_as_float(parts[i] & 0xffff0000);
    } else {
      __half2 pair;
      memcpy(&pair, &parts[i], sizeof(pair));
      values[2 * i] = __low2float(pair);
      values[2 * i + 1] = __high2float(pair);
    }
  }
}
template <typename T>
__device__ __forceinline__ int4 narrow(const float (&values)[16 / sizeof(T)]) {
  Pack<T, 16 / sizeof(T)> packed;
#pragma unroll
  for (int n = 0; n < static_cast<int>(16 / sizeof(T)); ++n) packed.v[n] = from_float<T>(values[n]);
  int4 words;
  memcpy(&words, &packed, sizeof(words));
  return words;
}

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
__global__ void __launch_bounds__(VECS > 4 ? 128 : 1024) norm_registers(T* __restrict__ out, const T* __restrict__ x,
                                                       const T* __restrict__ shift, const T* __restrict__ scale,
                                                       unsigned rows, unsigned tokens, int vectors,
                                                       float inv_cols, float eps) {
  constexpr int N = 16 / sizeof(T);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const int4* x_row = reinterpret_cast<const int4*>(x) + row * vectors;
  int4* out_row = reinterpret_cast<int4*>(out) + row * vectors;
  const unsigned sample = static_cast<unsigned>(row) / tokens;
  const int4* shifts = reinterpret_cast<const int4*>(shift) + static_cast<int64_t>(sample) * vectors;
  const int4* scales = reinterpret_cast<const int4*>(scale) + static_cast<int64_t>(sample) * vectors;
  __shared__ float partial_sum[32], partial_squares[32];

  int4 words[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    words[k] = i < vectors ? x_row[i] : int4{};
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    float v[N];
    widen<T>(words[k], v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum += v[n];
  }
  const float mean = row_sum(sum, partial_sum) * inv_cols;

  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    if (static_cast<int>(threadIdx.x + k * blockDim.x) >= vectors) break;
    float v[N];
    widen<T>(words[k], v);
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (v[n] - mean) * (v[n] - mean);
  }
  const float inv_deviation = rsqrtf(row_sum(squares, partial_squares) * inv_cols + eps);

#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i >= vectors) break;  // and so are the rest of this thread's
    float v[N], b[N], w[N];
    widen<T>(words[k], v);
    widen<T>(shifts[i], b);
    widen<T>(scales[i], w);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = (v[n] - mean) * inv_deviation * (1.0f + w[n]) + b[n];
    out_row[i] = narrow<T>(v);
  }
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(512) norm_strided(T* __restrict__ out, const T* __restrict__ x,
                                                    const T* __restrict__ shift, const T* __restrict__ scale,
                                                    unsigned tokens, int64_t cols, float inv_cols,
                                                    float eps) {
  using Vec = Pack<T, N>;
  const Vec* x_row = reinterpret_cast<const Vec*>(x + blockIdx.x * cols);
  Vec* out_row = reinterpret_cast<Vec*>(out + blockIdx.x * cols);
  const int64_t sample = blockIdx.x / tokens;
  const Vec* shifts = reinterpret_cast<const Vec*>(shift + sample * cols);
  const Vec* scales = reinterpret_cast<const Vec*>(scale + sample * cols);
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
  const float inv_deviation = 1.0f / sqrtf(row_sum(squares, partial_squares) * inv_cols + eps);
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i], b = shifts[i], w = scales[i];
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float y = (to_float(v.v[n]) - mean) * inv_deviation;
      result.v[n] = from_float<T>(y * (1.0f + to_float(w.v[n])) + to_float(b.v[n]));
    }
    out_row[i] = result;
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(T* out, const T* x, const T* shift, const T* scale, unsigned rows, unsigned tokens, int64_t cols,
            float eps, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = cols / N;
  const float inv_cols = 1.0f / static_cast<float>(cols);
  const bool whole = cols % N == 0 && aligned(out) && aligned(x) && aligned(shift) && aligned(scale);
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? norm_strided<T, N> : norm_strided<T, 1>;
    const unsigned threads = cols >= 512 ? 512 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(out, x, shift, scale, tokens, cols, inv_cols, eps);
    return;
  }
  const bool warp_per_row = vectors <= 192;
  const auto places = [&](int64_t each) { return each * whole_warps((vectors + each - 1) / each); };
  const int vecs = warp_per_row            ? static_cast<int>((vectors + 31) / 32)
                   : vectors > 3072        ? 4
                   : places(3) < places(4) ? 3
                                           : 4;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1   ? norm_registers<T, 1>
                      : vecs == 2 ? norm_registers<T, 2>
                      : vecs == 3 ? norm_registers<T, 3>
                      : vecs == 4 ? norm_registers<T, 4>
                      : vecs == 5 ? norm_registers<T, 5>
                                  : norm_registers<T, 6>;
  kernel<<<grid, block, 0, stream>>>(out, x, shift, scale, rows, tokens, static_cast<int>(vectors), inv_cols, eps);
}

}  // namespace

void adaln_modulate(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                    const torch::stable::Tensor& shift, const torch::stable::Tensor& scale, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && shift.dim() == 2 && scale.dim() == 2,
                  "adaln_modulate: expected (batch, tokens, cols) and (batch, cols)");
  const int64_t batch = x.size(0), tokens = x.size(1), cols = x.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == tokens && out.size(2) == cols && shift.size(0) == batch &&
                      shift.size(1) == cols && scale.size(0) == batch && scale.size(1) == cols,
                  "adaln_modulate: shapes differ");
  const int64_t rows = batch * tokens;
  STD_TORCH_CHECK(rows <= INT32_MAX, "adaln_modulate: too many rows");
  for (const auto* t : {&out, &x, &shift, &scale}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "adaln_modulate: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "adaln_modulate: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "adaln_modulate: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(shift.const_data_ptr()), static_cast<const T*>(scale.const_data_ptr()),
           static_cast<unsigned>(rows), static_cast<unsigned>(tokens), cols, static_cast<float>(eps), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "adaln_modulate: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "adaln_modulate: ", cudaGetErrorString(error));
}
