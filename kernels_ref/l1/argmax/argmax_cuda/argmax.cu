// Position of the largest element of every row on CUDA: float16, bfloat16, float32.
//
// Rows are read once, in vectors of 16 bytes, four of them in flight per thread; a thread keeps its largest value and
// where it was. A row has a block; where that leaves the GPU idle it has a cluster of up to 8 blocks, which exchange
// their winners through distributed shared memory; short rows have a warp each. Rows that do not begin at a multiple of
// 16 bytes use the same vectors, only the first and the last are taken apart. Of equal values the first wins, whatever
// the order of threads, and a NaN is larger than any number.

#include <cooperative_groups.h>
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

namespace cg = cooperative_groups;

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

// Elements j .. j + N - 1 of a row of `cols`; those outside of it are -infinity. row + j is aligned to a whole vector.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_edge(const T* row, int j, int cols) {
  Pack<T, N> v;
  if constexpr (sizeof(v) == sizeof(uint4)) {
    // Both ways end in the same four words, and only then are they taken apart: 16-bit elements would be taken apart
    // in the branch, and every load waited for before the next one starts.
    uint4 bits;
    if (j >= 0 && j + N <= cols) {
      bits = *reinterpret_cast<const uint4*>(row + j);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(-INFINITY);
      memcpy(&bits, &v, sizeof(bits));
    }
    asm("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    memcpy(&v, &bits, sizeof(v));
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(-INFINITY);
  }
  return v;
}

// A value and where it was; {-infinity, INT32_MAX} is of no elements.
struct Winner {
  float value;
  int at;
};
__device__ __forceinline__ Winner better(Winner a, Winner b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool equal = a.value == b.value || (a_nan && b_nan);
  const bool take_b = equal ? b.at < a.at : b_nan || b.value > a.value;  // against a NaN in a, `>` is false
  return take_b ? b : a;
}
__device__ __forceinline__ Winner better_warp(Winner w) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    w = better(w, {__shfl_xor_sync(0xffffffffu, w.value, offset), __shfl_xor_sync(0xffffffffu, w.at, offset)});
  return w;
}

// Over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then), and then the
// gridDim.y blocks of its cluster. To be called once in a kernel.
__device__ __forceinline__ Winner best_of_row(Winner w) {
  w = better_warp(w);
  if (blockDim.x > 32) {
    __shared__ Winner of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) of_warp[warp] = w;
    __syncthreads();
    w = better_warp(lane < warps ? of_warp[lane] : Winner{-INFINITY, INT32_MAX});
  }
  if (gridDim.y > 1) {
    __shared__ Winner of_block;
    const cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) of_block = w;
    cluster.sync();
    for (unsigned rank = 0; rank < gridDim.y; ++rank) w = better(w, *cluster.map_shared_rank(&of_block, rank));
    cluster.sync();  // no block may end while another one reads its shared memory
  }
  return w;
}

// gridDim.y blocks (one cluster) have a row, or each warp of a block one when blockDim.x is 32. Vectors are counted
// from the 16-byte boundary at or before the row's first element.
template <typename T>
__global__ void __launch_bounds__(512) argmax_rows(int64_t* __restrict__ index, const T* __restrict__ all, int64_t rows,
                                                   int cols) {
  constexpr int VECS = 4, N = 16 / sizeof(T);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const T* x = all + row * cols;
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(x) / sizeof(T) % N);
  const int step = static_cast<int>(gridDim.y * blockDim.x) * N;
  Winner best{-INFINITY, INT32_MAX};
  const auto look_at = [&](const Pack<T, N>& v, int j) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      // Positions only grow here, so equals keep the first; `<=` is false for a NaN in v, and one in best stays.
      const float value = to_float(v.v[n]);
      if (!(value <= best.value) && best.value == best.value) best = {value, j + n};
    }
  };
  int j = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * N - shift;
  for (; j + (VECS - 1) * step < cols; j += VECS * step) {
    Pack<T, N> v[VECS];
#pragma unroll
    for (int k = 0; k < VECS; ++k) v[k] = load_edge<T, N>(x, j + k * step, cols);
#pragma unroll
    for (int k = 0; k < VECS; ++k) look_at(v[k], j + k * step);
  }
#pragma unroll 1
  for (; j < cols; j += step) look_at(load_edge<T, N>(x, j, cols), j);  // at most VECS - 1
  best = best_of_row(best);
  // Only a row of nothing but -infinity has no winner.
  if (threadIdx.x == 0 && blockIdx.y == 0) index[row] = best.at == INT32_MAX ? 0 : best.at;
}

unsigned whole_warps(int threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(int64_t* index, const T* x, int64_t rows, int cols, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  // A row that begins inside a vector has one more.
  const int vectors = cols % N == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 ? cols / N : (cols + 2 * N - 2) / N;
  const bool warp_per_row = vectors <= 512;
  // 264 blocks of 512 threads fill half of an H100; a part keeps at least one round of 4 vectors a thread.
  int64_t parts = 1;
  while (parts < 8 && rows * parts < 264 && vectors >= parts * 2 * 2048) parts *= 2;
  const auto blocks = static_cast<unsigned>(rows);
  cudaLaunchConfig_t config{};
  config.blockDim = warp_per_row ? dim3(32, 8) : dim3(vectors >= 2048 ? 512 : whole_warps((vectors + 3) / 4));
  config.gridDim = dim3(warp_per_row ? (blocks + 7) / 8 : blocks, static_cast<unsigned>(parts));
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, static_cast<unsigned>(parts), 1};
  config.attrs = &cluster;
  config.numAttrs = parts > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, argmax_rows<T>, index, x, rows, cols);  // its error is read by the caller
}

}  // namespace

void argmax(const torch::stable::Tensor& index, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && index.dim() == 1 && index.size(0) == x.size(0), "argmax: shapes differ");
  STD_TORCH_CHECK(index.scalar_type() == ScalarType::Long, "argmax: expected int64 positions");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(rows <= INT32_MAX && cols >= 1 && cols <= (1 << 30), "argmax: too few or too many elements");
  for (const auto* t : {&index, &x})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "argmax: expected contiguous tensors on one CUDA device");
  if (rows == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "argmax: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<int64_t*>(index.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()), rows,
           static_cast<int>(cols), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "argmax: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "argmax: ", cudaGetErrorString(error));
}
