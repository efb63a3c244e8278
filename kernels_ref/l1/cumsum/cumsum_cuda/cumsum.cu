// Running sums along the last axis on CUDA: float16, bfloat16, float32, added in float32.
//
// A block walks along its row in tiles of two 16-byte vectors a thread, and asks for the next tile before it adds up
// this one. A tile takes one synchronisation: warps scan their vectors by shuffles, leave their totals in shared memory, and
// then every warp scans all the totals. Where there are too few rows to fill the GPU, a cluster of up to 8 blocks
// shares a row: each first sums its part, they exchange the sums through distributed shared memory, and the second reading
// comes from L2. Short rows have a warp each. Rows that do not begin at a multiple of 16 bytes use the same vectors;
// only the first and the last of a row are taken apart. The order of additions is fixed: equal inputs, equal bytes.

#include <cooperative_groups.h>
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

// What is loaded as one: 16 bytes, or an element where the row is not aligned.
template <typename T, int N>
using Words = std::conditional_t<N * sizeof(T) == sizeof(uint4), uint4, Pack<T, N>>;
// Elements j .. j + N - 1 of a row of `cols`, as they lie in memory; those outside of it are 0. row + j is aligned
// to a whole vector.
template <typename T, int N>
__device__ __forceinline__ Words<T, N> load_words(const T* row, int j, int cols) {
  if (j >= 0 && j + N <= cols) return *reinterpret_cast<const Words<T, N>*>(row + j);
  Pack<T, N> v;
#pragma unroll
  for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(0.0f);
  Words<T, N> words;
  memcpy(&words, &v, sizeof(words));
  return words;
}
// The empty instruction keeps the compiler from taking 16-bit elements apart where they are loaded: every load would be
// waited for before the next one starts.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> taken_apart(Words<T, N> words) {
  if constexpr (sizeof(words) == sizeof(uint4)) {
    asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
  }
  Pack<T, N> v;
  memcpy(&v, &words, sizeof(v));
  return v;
}

template <typename T, int N>
__device__ __forceinline__ void store_edge(T* row, int j, int cols, const Pack<T, N>& v) {
  if (j >= 0 && j + N <= cols) {
    if constexpr (sizeof(v) == sizeof(uint4)) {
      // One store: nvcc splits the assignment of an array that was assembled in registers into smaller ones.
      uint4 bits;
      memcpy(&bits, &v, sizeof(bits));
      __stcs(reinterpret_cast<uint4*>(row + j), bits);
    } else {
      *reinterpret_cast<Pack<T, N>*>(row + j) = v;
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (j + n >= 0 && j + n < cols) row[j + n] = v.v[n];
}

constexpr int kVecs = 2, kWarps = 16;  // kVecs * kWarps totals are one for each lane of a warp

// The sum of the lanes up to and including this one.
__device__ __forceinline__ float scan_warp(float v) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float below = __shfl_up_sync(0xffffffffu, v, distance);
    if (lane >= distance) v += below;
  }
  return v;
}

// The sum of v over the block, for all its threads. `partial` holds kWarps floats of shared memory.
__device__ __forceinline__ float sum_block(float v, float* partial) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  if (lane == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : 0.0f;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// gridDim.y blocks (one cluster) have a row of `tiles` tiles, `share` each, or each warp of a block one when blockDim.x
// is 32 (gridDim.y is 1 then). N is 1 where the operands are not aligned to 16 bytes. Vectors are counted from the
// 16-byte boundary at or before the row's first element.
template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps) cumsum_rows(T* __restrict__ out, const T* __restrict__ x, int64_t rows,
                                                           int cols, int tiles, int share) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const T* x_row = x + row * cols;
  T* out_row = out + row * cols;
  const int shift = static_cast<int>(row * cols % N);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int width = static_cast<int>(blockDim.x) * N;  // elements between a thread's vectors
  const int begin = static_cast<int>(blockIdx.y) * share, end = min(tiles, begin + share);
  const int first = static_cast<int>(threadIdx.x) * N - shift;
  __shared__ float totals[2][kVecs * kWarps], partial[kWarps], of_block;

  float before = 0.0f;  // the sum of everything left of the tile
  if (gridDim.y > 1) {
    float sum = 0.0f;
#pragma unroll 2
    for (int tile = begin; tile < end; ++tile) {
      Words<T, N> words[kVecs];
#pragma unroll
      for (int k = 0; k < kVecs; ++k)
        words[k] = load_words<T, N>(x_row, first + (tile * kVecs + k) * width, cols);
#pragma unroll
      for (int k = 0; k < kVecs; ++k) {
        const Pack<T, N> v = taken_apart<T, N>(words[k]);
#pragma unroll
        for (int n = 0; n < N; ++n) sum += to_float(v.v[n]);
      }
    }
    sum = sum_block(sum, partial);
    const cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) of_block = sum;
    cluster.sync();
    for (unsigned rank = 0; rank < blockIdx.y; ++rank) before += *cluster.map_shared_rank(&of_block, rank);
    cluster.sync();  // no block may end while another one reads its shared memory
  }

  Words<T, N> next[kVecs];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) next[k] = load_words<T, N>(x_row, first + (begin * kVecs + k) * width, cols);
  for (int tile = begin; tile < end; ++tile) {
    float sums[kVecs][N], left[kVecs];  // running sums of a vector; the sum of what is left of it in its warp
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      const Pack<T, N> v = taken_apart<T, N>(next[k]);
      sums[k][0] = to_float(v.v[0]);
#pragma unroll
      for (int n = 1; n < N; ++n) sums[k][n] = sums[k][n - 1] + to_float(v.v[n]);
    }
#pragma unroll
    for (int k = 0; k < kVecs; ++k)  // beyond the part these are another's or nothing, and are not used
      next[k] = load_words<T, N>(x_row, first + ((tile + 1) * kVecs + k) * width, cols);
    float* of_warp = totals[tile % 2];  // two in turn: nobody is more than one synchronisation ahead
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      const float scanned = scan_warp(sums[k][N - 1]);
      left[k] = __shfl_up_sync(0xffffffffu, scanned, 1);
      if (lane == 0) left[k] = 0.0f;
      if (lane == 31 && blockDim.x > 32) of_warp[k * warps + warp] = scanned;
      if (blockDim.x == 32) {  // the totals need no shared memory
        left[k] += before;
        before += __shfl_sync(0xffffffffu, scanned, 31);
      }
    }
    if (blockDim.x > 32) {
      __syncthreads();
      const float all = scan_warp(lane < kVecs * warps ? of_warp[lane] : 0.0f);
#pragma unroll
      for (int k = 0; k < kVecs; ++k) {
        const int index = k * warps + warp;
        const float earlier = __shfl_sync(0xffffffffu, all, index > 0 ? index - 1 : 0);
        left[k] += index > 0 ? before + earlier : before;
      }
      before += __shfl_sync(0xffffffffu, all, 31);
    }
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      Pack<T, N> result;
#pragma unroll
      for (int n = 0; n < N; ++n) result.v[n] = from_float<T>(left[k] + sums[k][n]);
      store_edge<T, N>(out_row, first + (tile * kVecs + k) * width, cols, result);
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T, int N>
void launch(T* out, const T* x, int64_t rows, int cols, cudaStream_t stream) {
  // A row that begins inside a vector has one more.
  const int vectors = cols % N == 0 ? cols / N : (cols + 2 * N - 2) / N;
  const bool warp_per_row = vectors <= 32 * kVecs;
  const unsigned threads = warp_per_row                      ? 32
                           : vectors >= 32 * kWarps * kVecs ? 32 * kWarps
                                                            : whole_warps((vectors + kVecs - 1) / kVecs);
  const int tile = static_cast<int>(threads) * kVecs, tiles = (vectors + tile - 1) / tile;
  // 264 blocks of 512 threads fill half of an H100; a part keeps two tiles at least.
  int parts = 1;
  while (parts < 8 && rows * parts < 264 && tiles >= parts * 4) parts *= 2;
  const auto blocks = static_cast<unsigned>(rows);
  cudaLaunchConfig_t config{};
  config.blockDim = warp_per_row ? dim3(32, 8) : dim3(threads);
  config.gridDim = dim3(warp_per_row ? (blocks + 7) / 8 : blocks, static_cast<unsigned>(parts));
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, static_cast<unsigned>(parts), 1};
  config.attrs = &cluster;
  config.numAttrs = parts > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, cumsum_rows<T, N>, out, x, rows, cols, tiles,
                     (tiles + parts - 1) / parts);  // its error is read by the caller
}

}  // namespace

void cumsum(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "cumsum: expected (rows, cols)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols, "cumsum: shapes differ");
  STD_TORCH_CHECK(rows <= INT32_MAX && cols <= (1 << 30), "cumsum: tensor too large");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "cumsum: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "cumsum: expected contiguous tensors on one CUDA device");
  }
  if (rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "cumsum: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    auto* to = static_cast<T*>(out.mutable_data_ptr());
    const auto* from = static_cast<const T*>(x.const_data_ptr());
    const auto start = aligned(to) && aligned(from) ? launch<T, 16 / sizeof(T)> : launch<T, 1>;
    start(to, from, rows, static_cast<int>(cols), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "cumsum: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "cumsum: ", cudaGetErrorString(error));
}
