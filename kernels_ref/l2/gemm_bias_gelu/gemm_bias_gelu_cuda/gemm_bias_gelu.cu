// A linear layer with bias and GELU (tanh form) on CUDA: float16 and bfloat16, everything else in float32.
//
// Bias and GELU are applied to the sums of the product before they are rounded: y is never in memory.
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
#include "gelu.cuh"
#include "hopper.h"
#include "store.cuh"
#include "tile.cuh"

namespace {

// 8 warps: 2 along the rows of the tile, 4 along its columns, 64 x 32 sums each.
template <typename T, bool VECTORS>
__global__ void __launch_bounds__(tile::kThreads, 2)
    linear_tiles(T* __restrict__ out, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ bias,
                 int64_t m, int64_t n, int64_t k, bool vector_stores) {
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
  Shift shifts[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) shifts[j] = shift_of(bias, first_col + warp_col + 8 * j + lane % 4 * 2, n);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        words[j] = fragments::pair_of(T{}, gelu(sums[i][j][2 * half] + shifts[j].first),
                                      gelu(sums[i][j][2 * half + 1] + shifts[j].second));
      }
      fragments::transpose_quad(words);
      const int64_t r = row + 16 * i + 8 * half;
      if (r < m) fragments::store_strip(out + r * n, col, n, words, vector_stores);
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, bool VECTORS>
void launch_tiles(T* out, const T* a, const T* b, const T* bias, int64_t m, int64_t n, int64_t k,
                  cudaStream_t stream) {
  const int64_t tiles = ((m + tile::kTile - 1) / tile::kTile) * ((n + tile::kTile - 1) / tile::kTile);
  STD_TORCH_CHECK(tiles <= INT32_MAX, "gemm_bias_gelu: tensor too large");
  const auto kernel = linear_tiles<T, VECTORS>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(tiles), tile::kThreads, tile::kSharedBytes, stream>>>(out, a, b, bias, m, n, k,
                                                                                       n % 8 == 0 && aligned(out));
}

template <typename T>
void launch(void* out, const void* a, const void* b, const void* bias, int64_t m, int64_t n, int64_t k, bool bfloat16,
            bool hopper, cudaStream_t stream) {
  const bool vectors = k % 8 == 0 && aligned(a) && aligned(b);
  // Smaller ones would mostly multiply what lies beyond the edges of 256 x 128 tiles.
  if (hopper && vectors && m >= 256 && n >= 128 && k >= 64 &&
      linear_by_warp_groups(out, a, b, bias, m, n, k, bfloat16, stream)) {
    return;
  }
  const auto run = vectors ? launch_tiles<T, true> : launch_tiles<T, false>;
  run(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b),
      static_cast<const T*>(bias), m, n, k, stream);
}

}  // namespace

void gemm_bias_gelu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                    const torch::stable::Tensor& weight, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && x.dim() == 2 && weight.dim() == 2 && bias.dim() == 1,
                  "gemm_bias_gelu: expected (m, n), (m, k), (n, k) and (n,)");
  const int64_t m = x.size(0), n = weight.size(0), k = x.size(1);
  STD_TORCH_CHECK(weight.size(1) == k && bias.size(0) == n && out.size(0) == m && out.size(1) == n,
                  "gemm_bias_gelu: shapes differ");
  STD_TORCH_CHECK(m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX, "gemm_bias_gelu: tensor too large");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "gemm_bias_gelu: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "gemm_bias_gelu: expected contiguous tensors on one CUDA device");
  }
  if (m == 0 || n == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "gemm_bias_gelu: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, x.get_device_index());
  const auto run = [&](auto kind, bool bfloat16) {
    launch<decltype(kind)>(out.mutable_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(), bias.const_data_ptr(),
                           m, n, k, bfloat16, major == 9, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Half: run(__half{}, false); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}, true); break;
    default: STD_TORCH_CHECK(false, "gemm_bias_gelu: expected float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "gemm_bias_gelu: ", cudaGetErrorString(error));
}
