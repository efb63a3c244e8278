// Layer norm and exact GELU on CUDA: float16, bfloat16, float32.
//
// A row is read from memory once: every thread keeps its share (1, 2 or 4 vectors of 16 bytes) in registers. The mean is
// reduced first and the squares of the centred values second (no cancellation), each by warp shuffles and, in long rows,
// one pass through shared memory; scale, shift and GELU happen on the way out. Short rows get 8, 16 or 32 lanes of a
// warp each, several rows one after the other, for which a thread loads its weights and biases once; they never
// synchronise. 16-bit outputs take GELU from a polynomial, one exponential and one reciprocal, which leaves memory the
// bound. Rows that are not whole vectors, or too long for registers, take a strided kernel that reads the row three times.

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

// Sum over LANES neighbouring lanes, the same in all of them.
template <int LANES>
__device__ __forceinline__ float lanes_sum(float v) {
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}
// Sum over a block; `partial` holds 32 floats of shared memory, and two calls in a row need two of them.
__device__ __forceinline__ float block_sum(float v, float* partial) {
  v = lanes_sum<32>(v);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  return lanes_sum<32>(lane < warps ? partial[lane] : 0.0f);
}

__device__ __forceinline__ float exp2_fast(float v) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}
__device__ __forceinline__ float reciprocal_fast(float v) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}
// For 16 bits, v / (1 + 2^(-v p(v^2))): p was fitted so that the largest error is 2.6e-5, a fortieth of float16's
// tolerance. Beyond |v| = 5, where p stays as it is, the result is v or 0 to 3e-6.
template <typename T>
__device__ __forceinline__ float gelu(float v) {
  if constexpr (sizeof(T) == 4) {
    return 0.5f * v * (1.0f + erff(v * 0.707106781f));
  } else {
    const float square = fminf(v * v, 25.0f);
    const float p = fmaf(fmaf(1.01426330e-3f, square, -1.06775726e-1f), square, -2.30112134f);
    return v * reciprocal_fast(1.0f + exp2_fast(v * p));
  }
}

template <typename T, int VECS>
__device__ __forceinline__ float share_sum(const int4 (&words)[VECS]) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    float v[16 / sizeof(T)];
    widen<T>(words[k], v);
#pragma unroll
    for (const float one : v) sum += one;
  }
  return sum;
}
// Of vectors first, first + step, ... below `end`.
template <typename T, int VECS>
__device__ __forceinline__ float share_squares(const int4 (&words)[VECS], int first, int step, int end, float mean) {
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    if (first + k * step >= end) break;
    float v[16 / sizeof(T)];
    widen<T>(words[k], v);
#pragma unroll
    for (const float one : v) squares += (one - mean) * (one - mean);
  }
  return squares;
}
template <typename T>
__device__ __forceinline__ int4 result_of(const int4& words, const int4& weights, const int4& biases, float mean,
                                          float scale) {
  constexpr int N = 16 / sizeof(T);
  float v[N], w[N], b[N];
  widen<T>(words, v);
  widen<T>(weights, w);
  widen<T>(biases, b);
#pragma unroll
  for (int n = 0; n < N; ++n) v[n] = gelu<T>((v[n] - mean) * scale * w[n] + b[n]);
  return narrow<T>(v);
}

// Rows of `vectors` = cols / N vectors, at most VECS * LANES. A group of LANES lanes makes ROWS of them; the rows that a
// warp loads at one time follow each other.
constexpr int kShortThreads = 128;
template <typename T, int LANES, int VECS, int ROWS>
__global__ void __launch_bounds__(kShortThreads)
    norm_gelu_short(int4* __restrict__ out, const int4* __restrict__ x, const int4* __restrict__ weight,
                    const int4* __restrict__ bias, int64_t rows, int vectors, float inv_cols, float eps) {
  constexpr int kGroups = 32 / LANES;  // of a warp
  const int lane = threadIdx.x % LANES, group = threadIdx.x % 32 / LANES;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kShortThreads / 32) + threadIdx.x / 32;
  const int64_t first_row = warp * (kGroups * ROWS) + group;
  int4 words[ROWS][VECS], weights[VECS], biases[VECS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int64_t row = first_row + r * kGroups;
#pragma unroll
    for (int k = 0; k < VECS; ++k) {
      const int i = lane + k * LANES;
      words[r][k] = i < vectors && row < rows ? x[row * vectors + i] : int4{};
    }
  }
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = lane + k * LANES;
    weights[k] = i < vectors ? weight[i] : int4{};
    biases[k] = i < vectors ? bias[i] : int4{};
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {  // all lanes of a warp: shuffles need them
    const int64_t row = first_row + r * kGroups;
    const float mean = lanes_sum<LANES>(share_sum<T>(words[r])) * inv_cols;
    const float squares = lanes_sum<LANES>(share_squares<T>(words[r], lane, LANES, vectors, mean));
    const float scale = rsqrtf(squares * inv_cols + eps);
#pragma unroll
    for (int k = 0; k < VECS; ++k) {
      const int i = lane + k * LANES;
      if (i < vectors && row < rows)
        out[row * vectors + i] = result_of<T>(words[r][k], weights[k], biases[k], mean, scale);
    }
  }
}

// A block per row; the row is `vectors` = cols / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(256)
    norm_gelu_registers(int4* __restrict__ out, const int4* __restrict__ x, const int4* __restrict__ weight,
                        const int4* __restrict__ bias, int vectors, float inv_cols, float eps) {
  const int64_t start = static_cast<int64_t>(blockIdx.x) * vectors;
  const int first = threadIdx.x, step = blockDim.x;
  __shared__ float partial_sum[32], partial_squares[32];
  int4 words[VECS], weights[VECS], biases[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) words[k] = first + k * step < vectors ? x[start + first + k * step] : int4{};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {  // requested before the reductions, which hide their latency
    weights[k] = first + k * step < vectors ? weight[first + k * step] : int4{};
    biases[k] = first + k * step < vectors ? bias[first + k * step] : int4{};
  }
  const float mean = block_sum(share_sum<T>(words), partial_sum) * inv_cols;
  const float squares = block_sum(share_squares<T>(words, first, step, vectors, mean), partial_squares);
  const float scale = rsqrtf(squares * inv_cols + eps);
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    if (first + k * step < vectors)
      out[start + first + k * step] = result_of<T>(words[k], weights[k], biases[k], mean, scale);
  }
}

// A block per row; N is 1 where rows are not whole vectors.
template <typename T, int N>
__global__ void __launch_bounds__(512) norm_gelu_strided(T* __restrict__ out, const T* __restrict__ x,
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
  const float mean = block_sum(sum, partial_sum) * inv_cols;
  float squares = 0.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i];
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (to_float(v.v[n]) - mean) * (to_float(v.v[n]) - mean);
  }
  const float scale = rsqrtf(block_sum(squares, partial_squares) * inv_cols + eps);
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const Vec v = x_row[i], w = reinterpret_cast<const Vec*>(weight)[i], b = reinterpret_cast<const Vec*>(bias)[i];
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n)
      result.v[n] = from_float<T>(gelu<T>((to_float(v.v[n]) - mean) * scale * to_float(w.v[n]) + to_float(b.v[n])));
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
  if (!whole || vectors > 1024) {
    const auto kernel = whole ? norm_gelu_strided<T, N> : norm_gelu_strided<T, 1>;
    const unsigned threads = cols >= 512 ? 512 : whole_warps(cols);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(out, x, weight, bias, cols, inv_cols, eps);
    return;
  }
  int4 *const to = reinterpret_cast<int4*>(out);
  const int4 *const from = reinterpret_cast<const int4*>(x), *const weights = reinterpret_cast<const int4*>(weight),
             *const biases = reinterpret_cast<const int4*>(bias);
  const auto length = static_cast<int>(vectors);
  if (vectors <= 128) {
    const auto start = [&](auto kernel, int rows_of_warp) {
      const int64_t rows_of_block = rows_of_warp * (kShortThreads / 32);
      kernel<<<static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block), kShortThreads, 0, stream>>>(
          to, from, weights, biases, rows, length, inv_cols, eps);
    };
    if (vectors <= 8) return start(norm_gelu_short<T, 8, 1, 4>, 16);
    if (vectors <= 16) return start(norm_gelu_short<T, 16, 1, 4>, 8);
    if (vectors <= 32) return start(norm_gelu_short<T, 32, 1, 4>, 4);
    if (vectors <= 64) return start(norm_gelu_short<T, 32, 2, 2>, 2);
    return start(norm_gelu_short<T, 32, 4, 1>, 1);
  }
  // Few vectors per thread keeps many threads loading, but a thread holds weight and bias too: at most 4 vectors.
  const int vecs = vectors <= 256 ? 1 : vectors <= 512 ? 2 : 4;
  const auto kernel = vecs == 1   ? norm_gelu_registers<T, 1>
                      : vecs == 2 ? norm_gelu_registers<T, 2>
                                  : norm_gelu_registers<T, 4>;
  kernel<<<static_cast<unsigned>(rows), whole_warps((vectors + vecs - 1) / vecs), 0, stream>>>(
      to, from, weights, biases, length, inv_cols, eps);
}

}  // namespace

void layer_norm_gelu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& weight, const torch::stable::Tensor& bias, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && weight.dim() == 1 && bias.dim() == 1,
                  "layer_norm_gelu: expected (rows, cols) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols && weight.size(0) == cols && bias.size(0) == cols,
                  "layer_norm_gelu: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX, "layer_norm_gelu: too many rows");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "layer_norm_gelu: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "layer_norm_gelu: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "layer_norm_gelu: no current stream");
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
    default: STD_TORCH_CHECK(false, "layer_norm_gelu: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "layer_norm_gelu: ", cudaGetErrorString(error));
}
