// Bias and tanh-GELU gate on CUDA: float16, bfloat16, float32.
//
// Bound by memory, so the design is about moving bytes: a thread has one column of vectors (16 bytes of the values and
// 16 of the gate) and, of a large tensor, four tokens of it, whose eight loads are all in flight together. The biases
// of its column are loaded once for the four. Row and column come from the grid, so there is no division per element,
// and short rows share a block. Rows whose length is not a whole number of vectors take the same kernel one element at
// a time. The gate is g / (1 + e^(-2u)): one exponential and one division, which hide behind the loads.

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

// Tanh-GELU. With u = sqrt(2 / pi) (x + 0.044715 x^3) and h = e^(-2 |u|) it is x / (1 + h), for negative x times h.
__device__ __forceinline__ float gelu(float x) {
  const float a = fabsf(x);
  const float h = __expf(a * -1.595769122f * (a * a * 0.044715f + 1.0f));  // 2 sqrt(2 / pi)
  return __fdividef(x > 0.0f ? x : x * h, 1.0f + h);                       // the divisor is between 1 and 2
}

// A thread makes one vector of R neighbouring tokens: x of the grid and y of the block choose the tokens.
template <typename T, int N, int R>
__global__ void __launch_bounds__(256) gate_rows(T* __restrict__ out, const T* __restrict__ x,
                                                 const T* __restrict__ bias, int64_t tokens, int64_t inner) {
  using Vec = Pack<T, N>;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * R;
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (first >= tokens || j >= inner) return;
  const T* column = x + first * 2 * inner + j;
  Vec values[R], gates[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (first + r >= tokens) break;
    values[r] = *reinterpret_cast<const Vec*>(column + r * 2 * inner);
    gates[r] = *reinterpret_cast<const Vec*>(column + r * 2 * inner + inner);
  }
  const Vec value_bias = *reinterpret_cast<const Vec*>(bias + j);
  const Vec gate_bias = *reinterpret_cast<const Vec*>(bias + inner + j);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (first + r >= tokens) break;
    Vec result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float value = to_float(values[r].v[n]) + to_float(value_bias.v[n]);
      result.v[n] = from_float<T>(value * gelu(to_float(gates[r].v[n]) + to_float(gate_bias.v[n])));
    }
    *reinterpret_cast<Vec*>(out + (first + r) * inner + j) = result;
  }
}

template <typename T, int N>
void launch_vectors(T* out, const T* x, const T* bias, int64_t tokens, int64_t inner, cudaStream_t stream) {
  const int64_t vectors = inner / N;
  int wide = 256;  // threads along a row: a power of two, so that short rows share a block
  while (wide > 1 && wide / 2 >= vectors) wide /= 2;
  // Four tokens per thread only where a quarter of the threads still fills 132 SMs twice.
  const bool many = tokens * vectors >= 4 * 2 * 132 * 2048;
  const int64_t per_block = 256 / wide * (many ? 4 : 1);
  const dim3 block(wide, 256 / wide);
  const dim3 grid(static_cast<unsigned>((tokens + per_block - 1) / per_block),
                  static_cast<unsigned>((vectors + wide - 1) / wide));
  const auto kernel = many ? gate_rows<T, N, 4> : gate_rows<T, N, 1>;
  kernel<<<grid, block, 0, stream>>>(out, x, bias, tokens, inner);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(T* out, const T* x, const T* bias, int64_t tokens, int64_t inner, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  if (inner % N == 0 && aligned(out) && aligned(x) && aligned(bias)) {
    launch_vectors<T, N>(out, x, bias, tokens, inner, stream);
  } else {
    launch_vectors<T, 1>(out, x, bias, tokens, inner, stream);
  }
}

}  // namespace

void ltx_geglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && bias.dim() == 1,
                  "ltx_geglu: expected (tokens, inner), (tokens, 2 * inner) and (2 * inner,)");
  const int64_t tokens = out.size(0), inner = out.size(1);
  STD_TORCH_CHECK(x.size(0) == tokens && x.size(1) == 2 * inner && bias.size(0) == 2 * inner,
                  "ltx_geglu: shapes differ");
  STD_TORCH_CHECK(tokens <= INT32_MAX && inner <= 65535 * 256, "ltx_geglu: tensor too large");
  for (const auto* t : {&out, &x, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "ltx_geglu: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "ltx_geglu: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0 || inner == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "ltx_geglu: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(bias.const_data_ptr()), tokens, inner, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "ltx_geglu: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "ltx_geglu: ", cudaGetErrorString(error));
}
