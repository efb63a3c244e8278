// Matrix product of float8 (e4m3fn) operands with a scale for every row on CUDA: float32 sums, bfloat16 output.
//
// Large products with rows aligned to 16 bytes go to hopper.cu (TMA and wgmma), where the device is a Hopper. All
// others take the kernel here: 128 x 128 tiles by cp.async and mma.sync (tile.cuh), whatever the shape and alignment.

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

// 8 warps: 2 along the rows of the tile, 4 along its columns, 64 x 32 sums each.
template <bool VECTORS>
__global__ void __launch_bounds__(tile::kThreads, 2)
    gemm_fp8_tiles(__nv_bfloat16* __restrict__ out, const uint8_t* __restrict__ a, const uint8_t* __restrict__ b,
                   const float* __restrict__ scale_a, const float* __restrict__ scale_b, int64_t m, int64_t n,
                   int64_t k, bool vector_stores) {
  extern __shared__ __align__(128) uint8_t stages[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const tile::Place place =
      tile::place_of<8>(blockIdx.x, (m + tile::kTile - 1) / tile::kTile, (n + tile::kTile - 1) / tile::kTile);
  const int64_t first_row = place.row * tile::kTile, first_col = place.col * tile::kTile;
  const uint8_t* a_tile = a + first_row * k;
  const uint8_t* b_tile = b + first_col * k;
  const auto load = [&](uint32_t stage, int64_t step) {
    const int64_t start = step * tile::kRowBytes;
    tile::load_rows<uint8_t, VECTORS, tile::kTile>(stage, a_tile, k, m - first_row, start, k);
    tile::load_rows<uint8_t, VECTORS, tile::kTile>(stage + tile::kOperandBytes, b_tile, k, n - first_col, start, k);
  };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
  float sums[4][4][4] = {};
  const int b_rows[2] = {warp_col, warp_col + 16};
  tile::multiply_stages(sums, shared, (k + tile::kRowBytes - 1) / tile::kRowBytes, warp_row, b_rows, load);

  const int64_t row = first_row + warp_row + lane / 4, col = first_col + warp_col + lane % 4 * 8;
  float col_scales[4][2];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t c = first_col + warp_col + 8 * j + lane % 4 * 2;
    col_scales[j][0] = c < n ? scale_b[c] : 0.0f;
    col_scales[j][1] = c + 1 < n ? scale_b[c + 1] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = row + 16 * i + 8 * half;
      const float row_scale = r < m ? scale_a[r] : 0.0f;
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[j] = fragments::pair_of(sums[i][j][2 * half] * row_scale * col_scales[j][0],
                                      sums[i][j][2 * half + 1] * row_scale * col_scales[j][1]);
      }
      fragments::transpose_quad(words);
      if (r < m) fragments::store_strip(out + r * n, col, n, words, vector_stores);
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void launch(void* out, const void* a, const void* b, const float* scale_a, const float* scale_b, int64_t m, int64_t n,
            int64_t k, bool hopper, cudaStream_t stream) {
  const bool vectors = k % 16 == 0 && aligned(a) && aligned(b);
  // Smaller ones would mostly multiply what lies beyond the edges of the tiles.
  if (hopper && vectors && m >= 128 && n >= 128 && k >= 128 &&
      gemm_fp8_by_warp_groups(out, a, b, scale_a, scale_b, m, n, k, stream)) {
    return;
  }
  const int64_t tiles = ((m + tile::kTile - 1) / tile::kTile) * ((n + tile::kTile - 1) / tile::kTile);
  STD_TORCH_CHECK(tiles <= INT32_MAX, "gemm_fp8: tensor too large");
  const auto kernel = vectors ? gemm_fp8_tiles<true> : gemm_fp8_tiles<false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(tiles), tile::kThreads, tile::kSharedBytes, stream>>>(
      static_cast<__nv_bfloat16*>(out), static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), scale_a,
      scale_b, m, n, k, n % 8 == 0 && aligned(out));
}

}  // namespace

void gemm_fp8(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b,
              const torch::stable::Tensor& scale_a, const torch::stable::Tensor& scale_b) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && a.dim() == 2 && b.dim() == 2 && scale_a.dim() == 1 && scale_b.dim() == 1,
                  "gemm_fp8: expected (m, n), (m, k), (n, k), (m,) and (n,)");
  const int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  STD_TORCH_CHECK(b.size(1) == k && out.size(0) == m && out.size(1) == n && scale_a.size(0) == m &&
                      scale_b.size(0) == n,
                  "gemm_fp8: shapes differ");
  STD_TORCH_CHECK(m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX, "gemm_fp8: tensor too large");
  STD_TORCH_CHECK(a.scalar_type() == ScalarType::Float8_e4m3fn && b.scalar_type() == ScalarType::Float8_e4m3fn,
                  "gemm_fp8: expected float8_e4m3fn operands");
  STD_TORCH_CHECK(scale_a.scalar_type() == ScalarType::Float && scale_b.scalar_type() == ScalarType::Float,
                  "gemm_fp8: expected float32 scales");
  STD_TORCH_CHECK(out.scalar_type() == ScalarType::BFloat16, "gemm_fp8: expected a bfloat16 output");
  for (const auto* t : {&out, &a, &b, &scale_a, &scale_b}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == a.get_device_index(),
                    "gemm_fp8: expected contiguous tensors on one CUDA device");
  }
  if (m == 0 || n == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(a.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(a.get_device_index(), &raw_stream) == 0,
                  "gemm_fp8: no current stream");
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, a.get_device_index());
  launch(out.mutable_data_ptr(), a.const_data_ptr(), b.const_data_ptr(),
         static_cast<const float*>(scale_a.const_data_ptr()), static_cast<const float*>(scale_b.const_data_ptr()), m, n,
         k, major == 9, static_cast<cudaStream_t>(raw_stream));
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "gemm_fp8: ", cudaGetErrorString(error));
}
