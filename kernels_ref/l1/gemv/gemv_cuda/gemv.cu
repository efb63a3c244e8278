// Matrix times a few vectors on CUDA: float16, bfloat16, float32, accumulated in float32.
//
// Bound by reading the matrix once. A warp owns two rows: a lane loads 16 bytes of each and multiplies them with the
// same columns of up to four vectors (L1 cache), several such steps in flight; the batch costs no further reads of
// the matrix. Where there are few rows, 2 to 8 warps share two rows and each takes every second to eighth step, so that
// the device always has enough warps to keep memory busy. Lanes are summed by shuffles, warps through shared memory,
// always in the same order. Rows that are not whole vectors, or not aligned, take the same kernel element by element.

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

constexpr int kRows = 2;   // rows of a warp
constexpr int kWarps = 8;  // warps of a block

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

// The matrix is read once: past the L1 cache, which is left to x.
template <typename V>
__device__ __forceinline__ V load_once(const V* p) {
  if constexpr (sizeof(V) == 16) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4*>(p));
    V v;
    memcpy(&v, &bits, sizeof(v));
    return v;
  } else {
    return *p;
  }
}

// B vectors of x, `split` warps (1, 2, 4 or 8) for two rows of w; N divides k.
template <typename T, int N, int B>
__global__ void __launch_bounds__(32 * kWarps) gemv_rows(T* __restrict__ out, const T* __restrict__ x,
                                                         const T* __restrict__ w, int64_t n, int64_t k, int split) {
  using Vec = Pack<T, N>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = warp / split, part = warp % split, groups = kWarps / split;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * groups + group) * kRows;
  const Vec* w_row[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)  // rows beyond the last one are read as the last one, and never written
    w_row[r] = reinterpret_cast<const Vec*>(w + (row + r < n ? row + r : n - 1) * k);

  float sum[kRows][B]{};
#pragma unroll(B == 1 ? 4 : 2)
  for (int64_t i = part * 32 + lane; i < k / N; i += split * 32) {
    Vec rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) rows[r] = load_once(w_row[r] + i);
#pragma unroll
    for (int b = 0; b < B; ++b) {
      const Vec values = reinterpret_cast<const Vec*>(x + b * k)[i];
#pragma unroll
      for (int e = 0; e < N; ++e) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[r][b] = fmaf(to_float(rows[r].v[e]), to_float(values.v[e]), sum[r][b]);
      }
    }
  }

  __shared__ float partial[kWarps][kRows][B];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int b = 0; b < B; ++b) {
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2)
        sum[r][b] += __shfl_xor_sync(0xffffffffu, sum[r][b], offset);
      if (lane == 0) partial[warp][r][b] = sum[r][b];
    }
  }
  __syncthreads();
  // One thread for each of the block's sums: groups * kRows * B of them, at most 64.
  const int own = threadIdx.x / (kRows * B), r = threadIdx.x / B % kRows, b = threadIdx.x % B;
  const int64_t own_row = (static_cast<int64_t>(blockIdx.x) * groups + own) * kRows + r;
  if (own >= groups || own_row >= n) return;
  float total = 0.0f;
  for (int s = 0; s < split; ++s) total += partial[own * split + s][r][b];
  out[b * n + own_row] = from_float<T>(total);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, int N>
void launch_vectors(T* out, const T* x, const T* w, int64_t batch, int64_t n, int64_t k, cudaStream_t stream) {
  // Enough warps to fill 132 SMs with 32 warps each four times, as long as every lane has two steps to make.
  const int64_t pairs = (n + kRows - 1) / kRows;
  int split = 1;
  while (split < kWarps && pairs * split < 4 * 132 * 32 && k / N >= 128 * split) split *= 2;
  const int64_t groups = kWarps / split;
  const unsigned grid = static_cast<unsigned>((pairs + groups - 1) / groups);
  const auto kernel = batch == 1   ? gemv_rows<T, N, 1>
                      : batch == 2 ? gemv_rows<T, N, 2>
                      : batch == 3 ? gemv_rows<T, N, 3>
                                   : gemv_rows<T, N, 4>;
  kernel<<<grid, 32 * kWarps, 0, stream>>>(out, x, w, n, k, split);
}

template <typename T>
void launch(T* out, const T* x, const T* w, int64_t batch, int64_t n, int64_t k, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  if (k % N == 0 && aligned(x) && aligned(w)) {
    launch_vectors<T, N>(out, x, w, batch, n, k, stream);
  } else {
    launch_vectors<T, 1>(out, x, w, batch, n, k, stream);
  }
}

}  // namespace

void gemv(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& w) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && w.dim() == 2 && out.dim() == 2, "gemv: expected (batch, n), (batch, k) and (n, k)");
  const int64_t batch = x.size(0), n = w.size(0), k = w.size(1);
  STD_TORCH_CHECK(x.size(1) == k && out.size(0) == batch && out.size(1) == n, "gemv: shapes differ");
  STD_TORCH_CHECK(batch >= 1 && batch <= 4, "gemv: expected a batch of 1 to 4");
  STD_TORCH_CHECK(n <= INT32_MAX, "gemv: too many rows");
  for (const auto* t : {&out, &x, &w}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "gemv: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "gemv: expected contiguous tensors on one CUDA device");
  }
  if (n == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "gemv: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(w.const_data_ptr()), batch, n, k, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "gemv: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "gemv: ", cudaGetErrorString(error));
}
