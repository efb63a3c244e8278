// Grouped matrix product of a mixture of experts on CUDA: bfloat16, sums in float32.
//
// Large products with rows aligned to 16 bytes go to hopper.cu (TMA and wgmma), where the device is a Hopper. All
// others take the kernel here: 128 x 128 tiles by cp.async and mma.sync (tile.cuh), whatever the shape and alignment.
// The offsets are never read on the host: the grid here has as many rows of tiles as there can be at most, one for
// every 128 tokens and one more for every expert, and every block looks up by a prefix sum which expert's its tile is.
// Those that find none leave at once.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "hopper.h"
#include "store.cuh"
#include "tile.cuh"

namespace {

using T = __nv_bfloat16;

struct Group {
  int64_t expert, row, end;  // the tile's first row in x, and the row at which the expert's rows end
};

// The expert of row of tiles number `index`; expert -1 where there are not so many. All lanes of a warp get the same.
__device__ __forceinline__ Group group_of(int64_t index, const int64_t* __restrict__ offsets, int64_t experts) {
  const int lane = threadIdx.x % 32;
  for (int64_t base = 0; base < experts; base += 32) {
    const int64_t expert = base + lane;
    const int64_t first = expert < experts ? offsets[expert] : 0, end = expert < experts ? offsets[expert + 1] : 0;
    const int64_t tiles = (end - first + tile::kTile - 1) / tile::kTile;
    int64_t until = tiles;  // tiles of this and the lower lanes
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int64_t below = __shfl_up_sync(0xffffffffu, until, distance);
      if (lane >= distance) until += below;
    }
    const unsigned beyond = __ballot_sync(0xffffffffu, until > index);
    if (beyond != 0) {
      const int owner = __ffs(beyond) - 1;
      const int64_t row = first + (index - (until - tiles)) * tile::kTile;
      return {base + owner, __shfl_sync(0xffffffffu, row, owner), __shfl_sync(0xffffffffu, end, owner)};
    }
    index -= __shfl_sync(0xffffffffu, until, 31);
  }
  return {-1, 0, 0};
}

// 8 warps: 2 along the rows of the tile, 4 along its columns, 64 x 32 sums each.
template <bool VECTORS>
__global__ void __launch_bounds__(tile::kThreads, 2)
    grouped_gemm_tiles(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weights,
                       const int64_t* __restrict__ offsets, int64_t row_tiles, int64_t experts, int64_t n, int64_t k,
                       bool vector_stores) {
  extern __shared__ __align__(128) uint8_t stages[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const tile::Place place = tile::place_of<8>(blockIdx.x, row_tiles, (n + tile::kTile - 1) / tile::kTile);
  const Group group = group_of(place.row, offsets, experts);
  if (group.expert < 0) return;
  const int64_t first_row = group.row, first_col = place.col * tile::kTile;
  const int64_t pitch = k * static_cast<int64_t>(sizeof(T));
  const T* a_tile = x + first_row * k;
  const T* b_tile = weights + (group.expert * n + first_col) * k;
  const auto load = [&](uint32_t stage, int64_t step) {
    const int64_t start = step * tile::kRowBytes;
    tile::load_rows<T, VECTORS, tile::kTile>(stage, a_tile, pitch, group.end - first_row, start, pitch);
    tile::load_rows<T, VECTORS, tile::kTile>(stage + tile::kOperandBytes, b_tile, pitch, n - first_col, start, pitch);
  };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
  float sums[4][4][4] = {};
  const int b_rows[2] = {warp_col, warp_col + 16};
  tile::multiply_stages<T>(sums, shared, (pitch + tile::kRowBytes - 1) / tile::kRowBytes, warp_row, b_rows, load);

  const int64_t row = first_row + warp_row + lane / 4, col = first_col + warp_col + lane % 4 * 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[j] = fragments::pair_of(T{}, sums[i][j][2 * half], sums[i][j][2 * half + 1]);
      }
      fragments::transpose_quad(words);
      const int64_t r = row + 16 * i + 8 * half;
      if (r < group.end) fragments::store_strip(out + r * n, col, n, words, vector_stores);
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void launch_tiles(T* out, const T* x, const T* weights, const int64_t* offsets, const Problem& problem, bool vectors,
                  cudaStream_t stream) {
  const auto [tokens, experts, n, k] = problem;
  // An expert's last tile may be a part of one, so there are fewer than this; nor are there more than tokens.
  const int64_t most = tokens / tile::kTile + experts, row_tiles = most < tokens ? most : tokens;
  const int64_t tiles = row_tiles * ((n + tile::kTile - 1) / tile::kTile);
  STD_TORCH_CHECK(tiles <= INT32_MAX, "grouped_gemm: tensor too large");
  const auto kernel = vectors ? grouped_gemm_tiles<true> : grouped_gemm_tiles<false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(tiles), tile::kThreads, tile::kSharedBytes, stream>>>(
      out, x, weights, offsets, row_tiles, experts, n, k, n % 8 == 0 && aligned(out));
}

}  // namespace

void grouped_gemm(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& weights, const torch::stable::Tensor& offsets) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && x.dim() == 2 && weights.dim() == 3 && offsets.dim() == 1,
                  "grouped_gemm: expected (tokens, n), (tokens, k), (experts, n, k) and (experts + 1,)");
  const int64_t tokens = x.size(0), experts = weights.size(0), n = weights.size(1), k = x.size(1);
  STD_TORCH_CHECK(weights.size(2) == k && offsets.size(0) == experts + 1 && out.size(0) == tokens && out.size(1) == n,
                  "grouped_gemm: shapes differ");
  STD_TORCH_CHECK(offsets.scalar_type() == ScalarType::Long, "grouped_gemm: expected int64 offsets");
  for (const auto* t : {&out, &x, &weights}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::BFloat16, "grouped_gemm: the CUDA kernel takes bfloat16");
  }
  for (const auto* t : {&out, &x, &weights, &offsets}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "grouped_gemm: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0 || n == 0 || experts == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "grouped_gemm: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const bool vectors = k % 8 == 0 && aligned(x.const_data_ptr()) && aligned(weights.const_data_ptr());
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, x.get_device_index());
  const auto* starts = static_cast<const int64_t*>(offsets.const_data_ptr());
  // Smaller ones would mostly multiply what lies beyond the edges of the tiles.
  if (major != 9 || !vectors || n < 128 || k < 64 ||
      !grouped_gemm_by_warp_groups(out.mutable_data_ptr(), x.const_data_ptr(), weights.const_data_ptr(), starts,
                                   {tokens, experts, n, k}, stream)) {
    launch_tiles(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
                 static_cast<const T*>(weights.const_data_ptr()), starts, {tokens, experts, n, k}, vectors, stream);
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "grouped_gemm: ", cudaGetErrorString(error));
}
