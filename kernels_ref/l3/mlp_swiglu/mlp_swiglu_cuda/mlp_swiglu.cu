// The feed-forward block of a Llama layer on CUDA: bfloat16, everything else in float32.
//
// Two launches. The first multiplies by w_gate and w_up together, 64 rows of each in a tile, and gates the sums before
// they are rounded, so that neither g nor u is ever in memory; the second multiplies h by w_down.
// Large products with rows aligned to 16 bytes go to hopper.cu (TMA and wgmma), where the device is a Hopper. All
// others take the kernel here: tiles of 128 rows of both operands by cp.async and mma.sync (tile.cuh), whatever the
// shape and alignment.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "gate.cuh"
#include "hopper.h"
#include "store.cuh"
#include "tile.cuh"

namespace {

using T = __nv_bfloat16;

// 8 warps: 2 along the rows of the tile, 4 along its columns, 64 x 32 sums each. GATED: 16 columns of the gate and the
// same 16 of up, and tiles of 64 columns of `out`; `up` is not used otherwise.
template <bool GATED, bool VECTORS>
__global__ void __launch_bounds__(tile::kThreads, 2)
    mlp_tiles(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ up,
              int64_t m, int64_t n, int64_t k, bool vector_stores) {
  constexpr int kCols = GATED ? tile::kTile / 2 : tile::kTile;
  extern __shared__ __align__(128) uint8_t stages[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const tile::Place place =
      tile::place_of<8>(blockIdx.x, (m + tile::kTile - 1) / tile::kTile, (n + kCols - 1) / kCols);
  const int64_t first_row = place.row * tile::kTile, first_col = place.col * kCols;
  const int64_t pitch = k * static_cast<int64_t>(sizeof(T));
  const T* a_tile = a + first_row * k;
  const T* b_tile = b + first_col * k;
  const auto load = [&](uint32_t stage, int64_t step) {
    const int64_t start = step * tile::kRowBytes;
    tile::load_rows<T, VECTORS, tile::kTile>(stage, a_tile, pitch, m - first_row, start, pitch);
    const uint32_t b_stage = stage + tile::kOperandBytes;
    tile::load_rows<T, VECTORS, kCols>(b_stage, b_tile, pitch, n - first_col, start, pitch);
    if constexpr (GATED) {
      const T* up_tile = up + first_col * k;
      const uint32_t up_stage = b_stage + kCols * tile::kRowBytes;
      tile::load_rows<T, VECTORS, kCols>(up_stage, up_tile, pitch, n - first_col, start, pitch);
    }
  };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * 64, warp_col = warp % 4 * (kCols / 4);
  float sums[4][4][4] = {};
  const int b_rows[2] = {warp_col, GATED ? kCols + warp_col : warp_col + 16};
  tile::multiply_stages<T>(sums, shared, (pitch + tile::kRowBytes - 1) / tile::kRowBytes, warp_row, b_rows, load);

  const int64_t row = first_row + warp_row + lane / 4, col = first_col + warp_col;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (GATED) {  // two strips of rows r and r + 8 each make the four of an exchange
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* gate = &sums[i][j % 2][j / 2 * 2];
        const float* other = &sums[i][2 + j % 2][j / 2 * 2];
        words[j] = fragments::pair_of(gated(gate[0], other[0]), gated(gate[1], other[1]));
      }
      fragments::transpose_quad(words);
      const int64_t r = row + 16 * i + lane % 4 / 2 * 8;
      if (r < m) fragments::store_strip(out + r * n, col + lane % 2 * 8, n, words, vector_stores);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) words[j] = fragments::pair_of(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
        fragments::transpose_quad(words);
        const int64_t r = row + 16 * i + 8 * half;
        if (r < m) fragments::store_strip(out + r * n, col + lane % 4 * 8, n, words, vector_stores);
      }
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// out (m, n) = a (m, k) * b (n, k)^T, or silu of that times a * up^T.
template <bool GATED>
void multiply(void* out, const void* a, const void* b, const void* up, int64_t m, int64_t n, int64_t k, bool hopper,
              cudaStream_t stream) {
  const bool vectors = k % 8 == 0 && aligned(a) && aligned(b) && aligned(up);
  // Smaller ones would mostly multiply what lies beyond the edges of large tiles.
  if (hopper && vectors && m >= 256 && n >= 128 && k >= 64 &&
      (GATED ? gated_by_warp_groups(out, a, b, up, m, n, k, stream)
             : product_by_warp_groups(out, a, b, m, n, k, stream))) {
    return;
  }
  constexpr int kCols = GATED ? tile::kTile / 2 : tile::kTile;
  const int64_t tiles = ((m + tile::kTile - 1) / tile::kTile) * ((n + kCols - 1) / kCols);
  STD_TORCH_CHECK(tiles <= INT32_MAX, "mlp_swiglu: tensor too large");
  const auto kernel = vectors ? mlp_tiles<GATED, true> : mlp_tiles<GATED, false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(tiles), tile::kThreads, tile::kSharedBytes, stream>>>(
      static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(up), m, n, k,
      n % 8 == 0 && aligned(out));
}

}  // namespace

void mlp_swiglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& w_gate,
                const torch::stable::Tensor& w_up, const torch::stable::Tensor& w_down) {
  using torch::headeronly::ScalarType;
  for (const auto* t : {&out, &x, &w_gate, &w_up, &w_down}) {
    STD_TORCH_CHECK(t->dim() == 2, "mlp_swiglu: expected matrices");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::BFloat16, "mlp_swiglu: the CUDA kernel takes bfloat16");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "mlp_swiglu: expected contiguous tensors on one CUDA device");
  }
  const int64_t tokens = x.size(0), hidden = x.size(1), inner = w_gate.size(0);
  STD_TORCH_CHECK(out.size(0) == tokens && out.size(1) == hidden && w_gate.size(1) == hidden &&
                      w_up.size(0) == inner && w_up.size(1) == hidden && w_down.size(0) == hidden &&
                      w_down.size(1) == inner,
                  "mlp_swiglu: shapes differ");
  STD_TORCH_CHECK(tokens <= INT32_MAX && hidden <= INT32_MAX && inner <= INT32_MAX, "mlp_swiglu: tensor too large");
  if (tokens == 0 || hidden == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "mlp_swiglu: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, x.get_device_index());
  // PyTorch's allocator hands it out again only to work that is queued behind this, on the same stream.
  const torch::stable::Tensor h = torch::stable::new_empty(x, {tokens, inner});
  if (inner > 0) {
    multiply<true>(h.mutable_data_ptr(), x.const_data_ptr(), w_gate.const_data_ptr(), w_up.const_data_ptr(), tokens,
                   inner, hidden, major == 9, stream);
  }
  multiply<false>(out.mutable_data_ptr(), h.const_data_ptr(), w_down.const_data_ptr(), w_down.const_data_ptr(), tokens,
                  hidden, inner, major == 9, stream);
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "mlp_swiglu: ", cudaGetErrorString(error));
}
