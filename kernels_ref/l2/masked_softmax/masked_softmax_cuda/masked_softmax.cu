// Softmax of scaled and masked attention scores on CUDA: float16, bfloat16, float32.
//
// Scores are read once, in vectors of 16 bytes, together with as many mask bytes (which the heads share, so they come
// from L2), and stay in registers as float32, -infinity where masked. Maximum and sum are reduced by warp shuffles and
// one pass through shared memory each. Short rows get a warp each and never synchronise. Rows that do not begin at a
// multiple of 16 bytes use the same vectors, only their first and last are taken apart. The scale is positive, so it
// can wait until the maximum has been subtracted. Rows too long for registers are read three times.

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

struct Shape {
  int64_t rows, scores_stride, mask_stride;  // strides between batches, in elements
  unsigned head_queries, queries;            // rows of a batch, rows of a head
  int keys;
};

// Row `row` of all: where its scores, its mask and its output begin, and how far its scores lie behind a vector's edge.
template <typename T, int N>
struct Row {
  const T* x;
  const uint8_t* mask;
  T* out;
  int shift;
  __device__ Row(T* out_, const T* scores, const uint8_t* mask_, const Shape& s, int64_t row) {
    const auto index = static_cast<unsigned>(row);  // 32 bits: cheap divisions
    const int64_t batch = index / s.head_queries;
    const unsigned within = index % s.head_queries;
    x = scores + batch * s.scores_stride + static_cast<int64_t>(within) * s.keys;
    mask = mask_ + batch * s.mask_stride + static_cast<int64_t>(within % s.queries) * s.keys;
    out = out_ + row * s.keys;
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(x) / sizeof(T) % N);
  }
};

template <int BYTES>
__device__ __forceinline__ bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % BYTES == 0; }

// What is loaded or stored as one.
template <int BYTES>
struct WordOf;
template <>
struct WordOf<16> { using Type = uint4; };
template <>
struct WordOf<8> { using Type = uint2; };
template <>
struct WordOf<4> { using Type = uint32_t; };
template <>
struct WordOf<2> { using Type = uint16_t; };
template <>
struct WordOf<1> { using Type = uint8_t; };

// N neighbouring scores and their mask bytes, as they lie in memory. They stay words until all loads of a thread have
// started: 16-bit elements that are taken apart where they are loaded are waited for there, one load after the other.
template <typename T, int N>
struct Masked {
  typename WordOf<N * sizeof(T)>::Type scores;
  typename WordOf<N>::Type mask;

  // As float32; -infinity where masked or outside of the row.
  __device__ __forceinline__ void put(float (&v)[N]) const {
    Pack<T, N> x;
    Pack<uint8_t, N> m;
    memcpy(&x, &scores, sizeof(x));
    memcpy(&m, &mask, sizeof(m));
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = m.v[n] != 0 ? to_float(x.v[n]) : -INFINITY;
  }
};

// Elements j .. j + N - 1 of a row. x + j is aligned to a vector.
template <typename T, int N>
__device__ __forceinline__ Masked<T, N> load_masked(const Row<T, N>& row, int j, int keys) {
  using Scores = decltype(Masked<T, N>::scores);
  using Mask = decltype(Masked<T, N>::mask);
  const bool inside = j >= 0 && j + N <= keys;
  Masked<T, N> loaded;
  if (inside) {
    loaded.scores = *reinterpret_cast<const Scores*>(row.x + j);
  } else {
    Pack<T, N> x;
#pragma unroll
    for (int n = 0; n < N; ++n) x.v[n] = j + n >= 0 && j + n < keys ? row.x[j + n] : from_float<T>(0.0f);
    memcpy(&loaded.scores, &x, sizeof(x));
  }
  if (inside && aligned<N>(row.mask + j)) {
    loaded.mask = *reinterpret_cast<const Mask*>(row.mask + j);
  } else {
    Pack<uint8_t, N> mask;
#pragma unroll
    for (int n = 0; n < N; ++n) mask.v[n] = j + n >= 0 && j + n < keys ? row.mask[j + n] : 0;
    memcpy(&loaded.mask, &mask, sizeof(mask));
  }
  if constexpr (sizeof(Scores) == sizeof(uint4)) {
    asm("" : "+r"(loaded.scores.x), "+r"(loaded.scores.y), "+r"(loaded.scores.z), "+r"(loaded.scores.w));
  }
  if constexpr (sizeof(Mask) == sizeof(uint2)) asm("" : "+r"(loaded.mask.x), "+r"(loaded.mask.y));
  return loaded;
}

// The output may lie otherwise than the scores, where these repeat from batch to batch.
template <typename T, int N>
__device__ __forceinline__ void store_scaled(const Row<T, N>& row, int j, int keys, const float (&v)[N], float factor) {
  Pack<T, N> result;
#pragma unroll
  for (int n = 0; n < N; ++n) result.v[n] = from_float<T>(v[n] * factor);
  if (j >= 0 && j + N <= keys && aligned<N * sizeof(T)>(row.out + j)) {
    if constexpr (sizeof(result) == sizeof(uint4)) {
      // One store: nvcc splits the assignment of an array that was assembled in registers into smaller ones.
      uint4 bits;
      memcpy(&bits, &result, sizeof(bits));
      __stcs(reinterpret_cast<uint4*>(row.out + j), bits);
    } else {
      *reinterpret_cast<Pack<T, N>*>(row.out + j) = result;
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (j + n >= 0 && j + n < keys) row.out[j + n] = result.v[n];
}

// A block's threads make a row, or each warp one when blockDim.x is 32.
template <typename T, int VECS>
__global__ void __launch_bounds__(1024) softmax_registers(T* __restrict__ out, const T* __restrict__ scores,
                                                          const uint8_t* __restrict__ mask, Shape s, float scale) {
  constexpr int N = 16 / sizeof(T);
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (index >= s.rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const Row<T, N> row(out, scores, mask, s, index);
  const int first = static_cast<int>(threadIdx.x) * N - row.shift, step = static_cast<int>(blockDim.x) * N;
  __shared__ float partial_max[32], partial_sum[32];

  float values[VECS][N];
  Masked<T, N> loaded[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) loaded[k] = load_masked(row, first + k * step, s.keys);
#pragma unroll
  for (int k = 0; k < VECS; ++k) loaded[k].put(values[k]);
  float max = -FLT_MAX;  // finite, so that rows with nothing in them do not subtract infinities
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) max = fmaxf(max, values[k][n]);
  }
  max = row_reduce(max, -FLT_MAX, partial_max, Max{});
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      values[k][n] = __expf((values[k][n] - max) * scale);
      sum += values[k][n];
    }
  }
  sum = row_reduce(sum, 0.0f, partial_sum, Add{});
  const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) store_scaled(row, first + k * step, s.keys, values[k], factor);
}

// A block per row of any length; N is 1 where the operands are not aligned to 16 bytes.
template <typename T, int N>
__global__ void __launch_bounds__(1024) softmax_strided(T* __restrict__ out, const T* __restrict__ scores,
                                                        const uint8_t* __restrict__ mask, Shape s, float scale) {
  const Row<T, N> row(out, scores, mask, s, blockIdx.x);
  const int first = static_cast<int>(threadIdx.x) * N - row.shift, step = static_cast<int>(blockDim.x) * N;
  __shared__ float partial_max[32], partial_sum[32];
  float v[N], max = -FLT_MAX, sum = 0.0f;
  for (int j = first; j < s.keys; j += step) {
    load_masked(row, j, s.keys).put(v);
#pragma unroll
    for (int n = 0; n < N; ++n) max = fmaxf(max, v[n]);
  }
  max = row_reduce(max, -FLT_MAX, partial_max, Max{});
  for (int j = first; j < s.keys; j += step) {
    load_masked(row, j, s.keys).put(v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum += __expf((v[n] - max) * scale);
  }
  sum = row_reduce(sum, 0.0f, partial_sum, Add{});
  const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (int j = first; j < s.keys; j += step) {
    load_masked(row, j, s.keys).put(v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = __expf((v[n] - max) * scale);
    store_scaled(row, j, s.keys, v, factor);
  }
}

unsigned whole_warps(int threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(T* out, const T* scores, const uint8_t* mask, const Shape& s, float scale, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  // A row that begins inside a vector has one more.
  const bool level = s.keys % N == 0 && s.scores_stride % N == 0;
  const int vectors = level ? s.keys / N : (s.keys + 2 * N - 2) / N;
  const auto blocks = static_cast<unsigned>(s.rows);
  const bool whole = reinterpret_cast<uintptr_t>(scores) % 16 == 0;
  if (!whole || vectors > 4096) {
    const auto kernel = whole ? softmax_strided<T, N> : softmax_strided<T, 1>;
    const unsigned threads = s.keys >= 1024 ? 1024 : whole_warps(s.keys);
    kernel<<<blocks, threads, 0, stream>>>(out, scores, mask, s, scale);
    return;
  }
  // Few vectors per thread keeps many threads loading; above 512 threads a block, 2 then 4 vectors each.
  const bool warp_per_row = vectors <= 128;
  const int unit = warp_per_row ? 32 : 512;
  const int vecs = vectors <= unit ? 1 : vectors <= 2 * unit ? 2 : 4;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(warp_per_row ? (blocks + 3) / 4 : blocks);
  const auto kernel = vecs == 1   ? softmax_registers<T, 1>
                      : vecs == 2 ? softmax_registers<T, 2>
                                  : softmax_registers<T, 4>;
  kernel<<<grid, block, 0, stream>>>(out, scores, mask, s, scale);
}

// Whether everything but the first axis is contiguous; the stride of an axis of size 1 says nothing.
bool dense_batches(const torch::stable::Tensor& t) {
  int64_t expected = 1;
  for (int64_t axis = t.dim() - 1; axis > 0; --axis) {
    if (t.size(axis) != 1 && t.stride(axis) != expected) return false;
    expected *= t.size(axis);
  }
  return true;
}

}  // namespace

void masked_softmax(const torch::stable::Tensor& out, const torch::stable::Tensor& scores,
                    const torch::stable::Tensor& mask, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(scores.dim() == 4 && out.dim() == 4 && mask.dim() == 3, "masked_softmax: expected 4, 4 and 3 axes");
  const int64_t batch = scores.size(0), heads = scores.size(1), queries = scores.size(2), keys = scores.size(3);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == heads && out.size(2) == queries && out.size(3) == keys &&
                      mask.size(0) == batch && mask.size(1) == queries && mask.size(2) == keys,
                  "masked_softmax: shapes differ");
  STD_TORCH_CHECK(mask.scalar_type() == ScalarType::Bool && out.scalar_type() == scores.scalar_type(),
                  "masked_softmax: expected a bool mask, and one dtype for out and scores");
  STD_TORCH_CHECK(out.is_contiguous() && dense_batches(scores) && dense_batches(mask),
                  "masked_softmax: expected contiguous batches");
  STD_TORCH_CHECK(batch * heads * queries <= INT32_MAX && keys <= (1 << 30), "masked_softmax: tensor too large");
  for (const auto* t : {&out, &scores, &mask})
    STD_TORCH_CHECK(t->is_cuda() && t->get_device_index() == scores.get_device_index(),
                    "masked_softmax: expected tensors on one CUDA device");
  if (batch * heads * queries * keys == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(scores.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(scores.get_device_index(), &raw_stream) == 0,
                  "masked_softmax: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const Shape shape{batch * heads * queries,
                    scores.stride(0),
                    mask.stride(0),
                    static_cast<unsigned>(heads * queries),
                    static_cast<unsigned>(queries),
                    static_cast<int>(keys)};
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(scores.const_data_ptr()),
           static_cast<const uint8_t*>(mask.const_data_ptr()), shape, static_cast<float>(scale), stream);
  };
  switch (scores.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "masked_softmax: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "masked_softmax: ", cudaGetErrorString(error));
}
