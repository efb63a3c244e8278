// Gated residual and modulated layer norm on CUDA: float16, bfloat16, float32.
//
// Two tensors are read and two are written, once each: a thread keeps its share of the gated sum (1 or 2 vectors of
// 16 bytes) in registers as float32, so `norm` never sees the rounded `out`. The mean is reduced first and the
// squares of the centred values second (no cancellation), each by warp shuffles and one pass through shared memory.
// `out` is written before the reductions, and scale and shift (a row for each sample, in L2) are requested before
// them too, so both hide behind the waiting. Short rows get a warp each, four to a block, and never synchronise.
// Rows that are not whole vectors, or too long for registers, take a strided kernel that reads its inputs three times.

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

template <typename T>
struct Pointers {
  T* out;
  T* norm;
  const T* residual;
  const T* x;
  const T* gate;
  const T* scale;
  const T* shift;
};

// One token per threadIdx.y; a token is `vectors` = hidden / N vectors long, at most VECS * blockDim.x.
template <typename T, int VECS>
__global__ void __launch_bounds__(512) gate_norm_registers(Pointers<T> p, int64_t rows, int64_t tokens, int vectors,
                                                           float inv_hidden, float eps) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per token
  const int64_t of_row = row * vectors, of_sample = row / tokens * vectors;
  const Vec* __restrict__ residual = reinterpret_cast<const Vec*>(p.residual) + of_row;
  const Vec* __restrict__ x = reinterpret_cast<const Vec*>(p.x) + of_row;
  const Vec* __restrict__ gate = reinterpret_cast<const Vec*>(p.gate) + of_sample;
  const Vec* __restrict__ scale = reinterpret_cast<const Vec*>(p.scale) + of_sample;
  const Vec* __restrict__ shift = reinterpret_cast<const Vec*>(p.shift) + of_sample;
  Vec* __restrict__ out = reinterpret_cast<Vec*>(p.out) + of_row;
  Vec* __restrict__ norm = reinterpret_cast<Vec*>(p.norm) + of_row;
  __shared__ float partial_sum[32], partial_squares[32];

  Vec base[VECS]{}, added[VECS]{}, gates[VECS]{}, scales[VECS]{}, shifts[VECS]{};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) base[k] = residual[i], added[k] = x[i];
  }
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    if (i < vectors) gates[k] = gate[i], scales[k] = scale[i], shifts[k] = shift[i];
  }

  float values[VECS][N];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      values[k][n] = to_float(base[k].v[n]) + to_float(gates[k].v[n]) * to_float(added[k].v[n]);
      sum += values[k][n];  // 0 for the padding
      result.v[n] = from_float<T>(values[k][n]);
    }
    if (i < vectors) out[i] = result;
  }
  const float mean = row_sum(sum, partial_sum) * inv_hidden;

  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const bool inside = static_cast<int>(threadIdx.x + k * blockDim.x) < vectors;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float d = inside ? values[k][n] - mean : 0.0f;
      squares += d * d;
    }
  }
  const float inv_std = 1.0f / sqrtf(row_sum(squares, partial_squares) * inv_hidden + eps);

#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int i = threadIdx.x + k * blockDim.x;
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float y = (values[k][n] - mean) * inv_std;
      result.v[n] = from_float<T>(y * (1.0f + to_float(scales[k].v[n])) + to_float(shifts[k].v[n]));
    }
    if (i < vectors) norm[i] = result;
  }
}

// A block per token; N is 1 where tokens are not whole vectors. Every pass makes the gated sum anew: `out` is rounded.
template <typename T, int N>
__global__ void __launch_bounds__(512) gate_norm_strided(Pointers<T> p, int64_t tokens, int64_t hidden,
                                                         float inv_hidden, float eps) {
  using Vec = Pack<T, N>;
  const int64_t of_row = blockIdx.x * hidden, of_sample = blockIdx.x / tokens * hidden;
  const Vec* __restrict__ residual = reinterpret_cast<const Vec*>(p.residual + of_row);
  const Vec* __restrict__ x = reinterpret_cast<const Vec*>(p.x + of_row);
  const Vec* __restrict__ gate = reinterpret_cast<const Vec*>(p.gate + of_sample);
  const Vec* __restrict__ scale = reinterpret_cast<const Vec*>(p.scale + of_sample);
  const Vec* __restrict__ shift = reinterpret_cast<const Vec*>(p.shift + of_sample);
  Vec* __restrict__ out = reinterpret_cast<Vec*>(p.out + of_row);
  Vec* __restrict__ norm = reinterpret_cast<Vec*>(p.norm + of_row);
  const int64_t vectors = hidden / N;
  __shared__ float partial_sum[32], partial_squares[32];
  const auto gated = [&](int64_t i) {
    const Vec r = residual[i], a = x[i], g = gate[i];
    Pack<float, N> v;
#pragma unroll
    for (int n = 0; n < N; ++n) v.v[n] = to_float(r.v[n]) + to_float(g.v[n]) * to_float(a.v[n]);
    return v;
  };

  float sum = 0.0f;
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto v = gated(i);
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sum += v.v[n];
      result.v[n] = from_float<T>(v.v[n]);
    }
    out[i] = result;
  }
  const float mean = row_sum(sum, partial_sum) * inv_hidden;
  float squares = 0.0f;
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto v = gated(i);
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (v.v[n] - mean) * (v.v[n] - mean);
  }
  const float inv_std = 1.0f / sqrtf(row_sum(squares, partial_squares) * inv_hidden + eps);
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto v = gated(i);
    const Vec s = scale[i], t = shift[i];
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n)
      result.v[n] = from_float<T>((v.v[n] - mean) * inv_std * (1.0f + to_float(s.v[n])) + to_float(t.v[n]));
    norm[i] = result;
  }
}

template <typename T>
bool aligned(const Pointers<T>& p) {
  for (const void* q : {static_cast<const void*>(p.out), static_cast<const void*>(p.norm),
                        static_cast<const void*>(p.residual), static_cast<const void*>(p.x),
                        static_cast<const void*>(p.gate), static_cast<const void*>(p.scale),
                        static_cast<const void*>(p.shift)}) {
    if (reinterpret_cast<uintptr_t>(q) % 16 != 0) return false;
  }
  return true;
}
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(const Pointers<T>& p, int64_t batch, int64_t tokens, int64_t hidden, float eps, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const int64_t vectors = hidden / N, rows = batch * tokens;
  const float inv_hidden = 1.0f / static_cast<float>(hidden);
  const bool whole = hidden % N == 0 && aligned(p);
  if (!whole || vectors > 1024) {
    const auto kernel = whole ? gate_norm_strided<T, N> : gate_norm_strided<T, 1>;
    const unsigned threads = hidden >= 512 ? 512 : whole_warps(hidden);
    kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(p, tokens, hidden, inv_hidden, eps);
    return;
  }
  // Few vectors per thread keeps many threads loading, but a vector costs a thread five of them: at most 2.
  const bool warp_per_row = vectors <= 64;
  const int vecs = vectors <= 32 || (vectors > 64 && vectors <= 512) ? 1 : 2;
  const dim3 block = warp_per_row ? dim3(32, 4) : dim3(whole_warps((vectors + vecs - 1) / vecs));
  const dim3 grid(static_cast<unsigned>(warp_per_row ? (rows + 3) / 4 : rows));
  const auto kernel = vecs == 1 ? gate_norm_registers<T, 1> : gate_norm_registers<T, 2>;
  kernel<<<grid, block, 0, stream>>>(p, rows, tokens, static_cast<int>(vectors), inv_hidden, eps);
}

}  // namespace

void flux_adaln_gate(const torch::stable::Tensor& out, const torch::stable::Tensor& norm,
                     const torch::stable::Tensor& residual, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& gate, const torch::stable::Tensor& scale,
                     const torch::stable::Tensor& shift, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3, "flux_adaln_gate: expected (batch, tokens, hidden)");
  const int64_t batch = x.size(0), tokens = x.size(1), hidden = x.size(2);
  STD_TORCH_CHECK(batch * tokens <= INT32_MAX, "flux_adaln_gate: too many tokens");
  for (const auto* t : {&out, &norm, &residual}) {
    STD_TORCH_CHECK(t->dim() == 3 && t->size(0) == batch && t->size(1) == tokens && t->size(2) == hidden,
                    "flux_adaln_gate: expected (batch, tokens, hidden) like x");
  }
  for (const auto* t : {&gate, &scale, &shift}) {
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == batch && t->size(1) == hidden,
                    "flux_adaln_gate: expected (batch, hidden)");
  }
  for (const auto* t : {&out, &norm, &residual, &x, &gate, &scale, &shift}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "flux_adaln_gate: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "flux_adaln_gate: expected contiguous tensors on one CUDA device");
  }
  if (batch == 0 || tokens == 0 || hidden == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "flux_adaln_gate: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const auto readable = [](const torch::stable::Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); };
    launch<T>({static_cast<T*>(out.mutable_data_ptr()), static_cast<T*>(norm.mutable_data_ptr()), readable(residual),
               readable(x), readable(gate), readable(scale), readable(shift)},
              batch, tokens, hidden, static_cast<float>(eps), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "flux_adaln_gate: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "flux_adaln_gate: ", cudaGetErrorString(error));
}
