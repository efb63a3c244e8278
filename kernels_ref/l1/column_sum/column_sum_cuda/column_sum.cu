// Sum over the rows of a matrix on CUDA: float16, bfloat16, float32, summed in float32.
//
// Two stages without atomics, so that equal inputs give equal bytes. First, a block takes a strip of columns (a warp
// reads 512 consecutive bytes of a row, 16 a thread) and a range of rows, of which its warps read every eighth, four at
// a time in flight; warps are added up in shared memory. Second, the ranges of rows are added up, in order, by a small
// kernel that reads their sums from L2. Narrow matrices give a thread row fewer threads and a block more rows.
// A number of columns that is not whole vectors takes the same kernels one element at a time.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
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

// Saying that no more than 4 blocks will share an SM gives the compiler the registers to have four loads under way:
// it makes do with 32 registers otherwise, and waits for each load.
constexpr int kThreads = 256, kBlocksPerSm = 4;

// sums: (gridDim.y, cols), row y for the rows y * span .. (y + 1) * span - 1. blockDim.y is a power of two.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) sum_ranges(float* __restrict__ sums, const T* __restrict__ x,
                                                                     int64_t rows, int64_t cols, int64_t span) {
  constexpr int FLIGHT = 4;
  using Vec = Pack<T, N>;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  const int64_t begin = blockIdx.y * span + threadIdx.y;
  const int64_t end = min(rows, (blockIdx.y + 1) * span);
  float sum[N]{};
  if (col < cols) {
    const auto add = [&](const Vec& v) {
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += to_float(v.v[n]);
    };
    const T* from = x + begin * cols + col;
    const int64_t step = static_cast<int64_t>(blockDim.y) * cols;
    int64_t row = begin;
    // No test in front of the loads: all start before the first is waited for.
    for (; row + (FLIGHT - 1) * blockDim.y < end; row += FLIGHT * blockDim.y, from += FLIGHT * step) {
      Vec v[FLIGHT];
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) v[k] = *reinterpret_cast<const Vec*>(from + k * step);
#pragma unroll
      for (int k = 0; k < FLIGHT; ++k) add(v[k]);
    }
    for (; row < end; row += blockDim.y, from += step) {
      const Vec v = *reinterpret_cast<const Vec*>(from);
      add(v);
    }
  }
  // of_thread[y][n][x]: neighbouring threads are neighbours, whatever n.
  __shared__ float of_thread[kThreads * N];
  const auto at = [&](unsigned y, int n) -> float& { return of_thread[(y * N + n) * blockDim.x + threadIdx.x]; };
#pragma unroll
  for (int n = 0; n < N; ++n) at(threadIdx.y, n) = sum[n];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
#pragma unroll
      for (int n = 0; n < N; ++n) at(threadIdx.y, n) += at(threadIdx.y + half, n);
    }
  }
  if (threadIdx.y == 0 && col < cols) {
#pragma unroll
    for (int n = 0; n < N; ++n) sums[blockIdx.y * cols + col + n] = at(0, n);
  }
}

// out[j] = sum of sums[i, j] over `ranges` rows i; a block of (32, 32) threads for 32 columns.
__global__ void __launch_bounds__(1024) add_ranges(float* __restrict__ out, const float* __restrict__ sums,
                                                       int64_t ranges, int64_t cols) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0.0f;
  if (col < cols) {
#pragma unroll 8
    for (int64_t i = threadIdx.y; i < ranges; i += 32) sum += sums[i * cols + col];
  }
  __shared__ float of_thread[32][32];
  of_thread[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && col < cols) {
#pragma unroll
    for (int y = 1; y < 32; ++y) sum += of_thread[y][threadIdx.x];
    out[col] = sum;
  }
}

template <typename T, int N>
void launch(const torch::stable::Tensor& out, const torch::stable::Tensor& x, cudaStream_t stream) {
  const int64_t rows = x.size(0), cols = x.size(1), vectors = cols / N;
  unsigned wide = 32;  // threads along a row: a power of two, fewer where the matrix is narrow
  while (wide > 1 && wide / 2 >= vectors) wide /= 2;
  const dim3 block(wide, kThreads / wide);
  const int64_t strips = (vectors + wide - 1) / wide;
  // Four blocks of 256 threads for each of 132 SMs, but at least eight rows for a thread.
  const int64_t most = std::min<int64_t>((528 + strips - 1) / strips, rows / (8 * block.y));
  const int64_t wanted = std::max<int64_t>(most, 1);
  const int64_t span = (rows + wanted - 1) / wanted, ranges = (rows + span - 1) / span;
  const dim3 grid(static_cast<unsigned>(strips), static_cast<unsigned>(ranges));
  const auto* from = static_cast<const T*>(x.const_data_ptr());
  auto* to = static_cast<float*>(out.mutable_data_ptr());
  if (ranges == 1) {
    sum_ranges<T, N><<<grid, block, 0, stream>>>(to, from, rows, cols, span);
    return;
  }
  const std::array<int64_t, 2> size{ranges, cols};
  const auto workspace = torch::stable::new_empty(out, size);
  auto* sums = static_cast<float*>(workspace.mutable_data_ptr());
  sum_ranges<T, N><<<grid, block, 0, stream>>>(sums, from, rows, cols, span);
  add_ranges<<<static_cast<unsigned>((cols + 31) / 32), dim3(32, 32), 0, stream>>>(to, sums, ranges, cols);
}

}  // namespace

void column_sum(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 1 && out.size(0) == x.size(1), "column_sum: shapes differ");
  STD_TORCH_CHECK(out.scalar_type() == ScalarType::Float, "column_sum: expected float32 sums");
  STD_TORCH_CHECK(x.size(1) <= INT32_MAX, "column_sum: tensor too large");
  STD_TORCH_CHECK(x.size(0) >= 1, "column_sum: expected a row at least");
  for (const auto* t : {&out, &x})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "column_sum: expected contiguous tensors on one CUDA device");
  if (x.size(1) == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "column_sum: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    constexpr int N = 16 / sizeof(T);
    const bool whole = x.size(1) % N == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
    (whole ? launch<T, N> : launch<T, 1>)(out, x, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "column_sum: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "column_sum: ", cudaGetErrorString(error));
}
