// Depthwise causal convolution of width 4 and SiLU on CUDA: float16, bfloat16, float32, computed in float32.
//
// Bound by memory: every thread loads 16 bytes of a row and stores 16 bytes. The three steps before its vector come
// from its neighbour in the warp by shuffles; only the first lane of a warp loads them itself (from a line that another warp
// needs anyway). Rows follow each other without a gap, so short ones share warps and blocks. Rows that are not whole
// vectors take a kernel that makes one output per thread; neighbours' loads overlap in the L1 cache.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kWidth = 4;
constexpr int kThreads = 256;

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

// v / (1 + e^-v), by the fast reciprocal. A divisor above 2^126 gives 0, which is right: v is below -87 then.
__device__ __forceinline__ float silu(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// Rows of whole 16-byte vectors, as one long sequence of vectors. A thread makes vector `index` of all; `first` tells
// whether it begins a row, which has zeros before it.
template <typename T>
__global__ void __launch_bounds__(kThreads) convolve_vectors(T* __restrict__ out, const T* __restrict__ x,
                                                             const T* __restrict__ weight, const T* __restrict__ bias,
                                                             uint32_t rows, uint32_t dim, uint32_t vectors) {
  constexpr int N = 16 / sizeof(T);
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x, count = rows * vectors;  // 32 bits: cheap divisions
  const uint32_t own = index < count ? index : count - 1;  // every lane takes part in the shuffles
  const uint32_t row = own / vectors, d = row % dim;
  const bool first = own == row * vectors;

  const uint4 bits = reinterpret_cast<const uint4*>(x)[own];
  Pack<T, N> v;
  memcpy(&v, &bits, sizeof(v));
  float seen[kWidth - 1 + N];  // the three steps before the vector, then the vector
#pragma unroll
  for (int e = 0; e < N; ++e) seen[kWidth - 1 + e] = to_float(v.v[e]);
#pragma unroll
  for (int e = 0; e < kWidth - 1; ++e) {
    seen[e] = __shfl_up_sync(0xffffffffu, seen[N + e], 1);
    if (threadIdx.x % 32 == 0 && !first) seen[e] = to_float(x[static_cast<int64_t>(own) * N - (kWidth - 1) + e]);
    if (first) seen[e] = 0.0f;
  }
  const Pack<T, kWidth> filter_of = reinterpret_cast<const Pack<T, kWidth>*>(weight)[d];
  float filter[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) filter[k] = to_float(filter_of.v[k]);
  const float offset = to_float(bias[d]);
#pragma unroll
  for (int e = 0; e < N; ++e) {
    float sum = offset;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum = fmaf(filter[k], seen[e + k], sum);
    v.v[e] = from_float<T>(silu(sum));
  }
  if (index < count) reinterpret_cast<Pack<T, N>*>(out)[index] = v;
}

// Any rows: a thread makes one output.
template <typename T>
__global__ void __launch_bounds__(kThreads) convolve_elements(T* __restrict__ out, const T* __restrict__ x,
                                                              const T* __restrict__ weight, const T* __restrict__ bias,
                                                              int64_t rows, int64_t dim, int64_t length) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= rows * length) return;
  const int64_t row = index / length, t = index - row * length, d = row % dim;
  float sum = to_float(bias[d]);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const int before = kWidth - 1 - k;
    if (t >= before) sum = fmaf(to_float(weight[d * kWidth + k]), to_float(x[index - before]), sum);
  }
  out[index] = from_float<T>(silu(sum));
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned blocks(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

template <typename T>
void launch(T* out, const T* x, const T* weight, const T* bias, int64_t rows, int64_t dim, int64_t length,
            cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  if (length % N == 0 && aligned(out) && aligned(x) && aligned(weight)) {
    const int64_t vectors = length / N;
    convolve_vectors<T><<<blocks(rows * vectors), kThreads, 0, stream>>>(
        out, x, weight, bias, static_cast<uint32_t>(rows), static_cast<uint32_t>(dim), static_cast<uint32_t>(vectors));
  } else {
    convolve_elements<T><<<blocks(rows * length), kThreads, 0, stream>>>(out, x, weight, bias, rows, dim, length);
  }
}

}  // namespace

void depthwise_causal_conv1d(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                             const torch::stable::Tensor& weight, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && weight.dim() == 2 && bias.dim() == 1,
                  "depthwise_causal_conv1d: expected (batch, dim, length), (dim, 4) and (dim,)");
  const int64_t batch = x.size(0), dim = x.size(1), length = x.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == dim && out.size(2) == length && weight.size(0) == dim &&
                      weight.size(1) == kWidth && bias.size(0) == dim,
                  "depthwise_causal_conv1d: shapes differ");
  STD_TORCH_CHECK(batch * dim * length <= INT32_MAX * int64_t{4}, "depthwise_causal_conv1d: tensor too large");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "depthwise_causal_conv1d: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "depthwise_causal_conv1d: expected contiguous tensors on one CUDA device");
  }
  if (batch * dim * length == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "depthwise_causal_conv1d: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(weight.const_data_ptr()), static_cast<const T*>(bias.const_data_ptr()), batch * dim,
           dim, length, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "depthwise_causal_conv1d: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "depthwise_causal_conv1d: ", cudaGetErrorString(error));
}
