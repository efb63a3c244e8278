// Matrix product with the weights of a linear layer on CUDA: float16 and bfloat16, sums in float32.
//
// Large products with rows aligned to 16 bytes go to hopper.cu (TMA and wgmma), where the device is a Hopper. All
// others take the kernel here: 128 x 128 tiles by cp.async and mma.sync (tile.cuh), whatever the shape and alignment.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
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
template <typename T, bool VECTORS>
__global__ void __launch_bounds__(tile::kThreads, 2)
    gemm_tiles(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, int64_t m, int64_t n, int64_t k,
               bool vector_stores) {
  extern __shared__ __align__(128) uint8_t stages[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const tile::Place place =
      tile::place_of<8>(blockIdx.x, (m + tile::kTile - 1) / tile::kTile, (n + tile::kTile - 1) / tile::kTile);
  const int64_t first_row = place.row * tile::kTile, first_col = place.col * tile::kTile;
  const int64_t pitch = k * static_cast<int64_t>(sizeof(T));
  const T* a_tile = a + first_row * k;
  const T* b_tile = b + first_col * k;
  const auto load = [&](uint32_t stage, int64_t step) {
    const int64_t start = step * tile::kRowBytes;
    tile::load_rows<T, VECTORS, tile::kTile>(stage, a_tile, pitch, m - first_row, start, pitch);
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
      if (r < m) fragments::store_strip(out + r * n, col, n, words, vector_stores);
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, bool VECTORS>
void launch_tiles(T* out, const T* a, const T* b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  const int64_t tiles = ((m + tile::kTile - 1) / tile::kTile) * ((n + tile::kTile - 1) / tile::kTile);
  STD_TORCH_CHECK(tiles <= INT32_MAX, "gemm: tensor too large");
  const auto kernel = gemm_tiles<T, VECTORS>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(tiles), tile::kThreads, tile::kSharedBytes, stream>>>(out, a, b, m, n, k,
                                                                                       n % 8 == 0 && aligned(out));
}

template <typename T>
void launch(void* out, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool bfloat16, bool hopper,
            cudaStream_t stream) {
  const bool vectors = k % 8 == 0 && aligned(a) && aligned(b);
  // Smaller ones would mostly multiply what lies beyond the edges of 256 x 128 tiles.
  if (hopper && vectors && m >= 256 && n >= 128 && k >= 64 &&
      gemm_by_warp_groups(out, a, b, m, n, k, bfloat16, stream)) {
    return;
  }
  const auto run = vectors ? launch_tiles<T, true> : launch_tiles<T, false>;
  run(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), m, n, k, stream);
}

}  // namespace

void gemm(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && a.dim() == 2 && b.dim() == 2, "gemm: expected (m, n), (m, k) and (n, k)");
  const int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  STD_TORCH_CHECK(b.size(1) == k && out.size(0) == m && out.size(1) == n, "gemm: shapes differ");
  STD_TORCH_CHECK(m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX, "gemm: tensor too large");
  for (const auto* t : {&out, &a, &b}) {
    STD_TORCH_CHECK(t->scalar_type() == a.scalar_type(), "gemm: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == a.get_device_index(),
                    "gemm: expected contiguous tensors on one CUDA device");
  }
  if (m == 0 || n == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(a.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(a.get_device_index(), &raw_stream) == 0,
                  "gemm: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, a.get_device_index());
  const auto run = [&](auto kind, bool bfloat16) {
    launch<decltype(kind)>(out.mutable_data_ptr(), a.const_data_ptr(), b.const_data_ptr(), m, n, k, bfloat16,
                           major == 9, stream);
  };
  switch (a.scalar_type()) {
    case ScalarType::Half: run(__half{}, false); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}, true); break;
    default: STD_TORCH_CHECK(false, "gemm: expected float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "gemm: ", cudaGetErrorString(error));
}
