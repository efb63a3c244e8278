// GELU-gated activation on CUDA: float16, bfloat16, float32, exact (erf) GELU.
//
// Bound by memory, so the design is about moving bytes: each thread loads one 16-byte vector of the gate and one of
// the values, both in flight together, and stores one vector; nothing is read or written twice. Row and column come
// from the grid, so there is no division per element, and short rows share a block. Rows whose length is not a
// whole number of vectors take the same kernel one element at a time.
// erff costs about 20 instructions, which still hide behind the loads.

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

__device__ __forceinline__ float activation(float v) { return 0.5f * v * (1.0f + erff(v * 0.707106781f)); }

// A thread makes one vector of one row: x of the grid and y of the block choose the row, the others the column.
// 5 blocks on an SM leave 48 registers, with which both loads start at once; for 6 or more the compiler loads the value
// only after the gate's erff.
template <typename T, int N>
__global__ void __launch_bounds__(256, 5) gate_rows(T* __restrict__ out, const T* __restrict__ x, int64_t rows,
                                                    int64_t cols) {
  using Vec = Pack<T, N>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t j = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (row >= rows || j >= cols) return;
  const T* x_row = x + row * 2 * cols + j;
  const Vec gate = *reinterpret_cast<const Vec*>(x_row + cols);
  const Vec value = *reinterpret_cast<const Vec*>(x_row);
  Vec result;
#pragma unroll
  for (int n = 0; n < N; ++n) result.v[n] = from_float<T>(activation(to_float(gate.v[n])) * to_float(value.v[n]));
  *reinterpret_cast<Vec*>(out + row * cols + j) = result;
}

template <typename T, int N>
void launch_vectors(T* out, const T* x, int64_t rows, int64_t cols, cudaStream_t stream) {
  const int64_t vectors = cols / N;
  int wide = 256;  // threads along a row: a power of two, so that short rows share a block
  while (wide > 1 && wide / 2 >= vectors) wide /= 2;
  const dim3 block(wide, 256 / wide);
  const dim3 grid(static_cast<unsigned>((rows + block.y - 1) / block.y),
                  static_cast<unsigned>((vectors + wide - 1) / wide));
  gate_rows<T, N><<<grid, block, 0, stream>>>(out, x, rows, cols);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(void* out, const void* x, int64_t rows, int64_t cols, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  if (cols % N == 0 && aligned(out) && aligned(x)) {
    launch_vectors<T, N>(static_cast<T*>(out), static_cast<const T*>(x), rows, cols, stream);
  } else {
    launch_vectors<T, 1>(static_cast<T*>(out), static_cast<const T*>(x), rows, cols, stream);
  }
}

}  // namespace

void geglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "geglu: expected (rows, cols) and (rows, 2 * cols)");
  const int64_t rows = out.size(0), cols = out.size(1);
  STD_TORCH_CHECK(x.size(0) == rows && x.size(1) == 2 * cols, "geglu: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX && cols <= 65535 * 256, "geglu: tensor too large");
  STD_TORCH_CHECK(x.scalar_type() == out.scalar_type(), "geglu: dtypes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "geglu: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "geglu: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  switch (x.scalar_type()) {
    case ScalarType::Float: launch<float>(out.mutable_data_ptr(), x.const_data_ptr(), rows, cols, stream); break;
    case ScalarType::Half: launch<__half>(out.mutable_data_ptr(), x.const_data_ptr(), rows, cols, stream); break;
    case ScalarType::BFloat16:
      launch<__nv_bfloat16>(out.mutable_data_ptr(), x.const_data_ptr(), rows, cols, stream);
      break;
    default: STD_TORCH_CHECK(false, "geglu: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "geglu: ", cudaGetErrorString(error));
}
