// Matrix product of float8 operands by wgmma and TMA, for capability 9.0 (sm_90a): see hopper.cuh.
//
// wgmma keeps about 14 bits of a sum of float8 products, so every stage, 128 elements of k, starts a new sum, which is
// then added to a total in float32. While one warp group adds, the other multiplies.

#include "hopper.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "hopper.cuh"
#include "store.cuh"

namespace {

using namespace hopper;

struct Tiles {
  int rows, cols;
};

// Bands of 12 rows of tiles: the 132 tiles under way at one time are about 12 x 11.
__device__ __forceinline__ void place_of(int index, Tiles tiles, int& row, int& col) {
  constexpr int kBand = 12;
  const int band = index / (kBand * tiles.cols), within = index % (kBand * tiles.cols);
  const int height = min(tiles.rows - band * kBand, kBand);
  row = (band * kBand + within % height) * kTileM;
  col = within / height * kTileN;
}

__global__ void __launch_bounds__(kThreads, 1)
    gemm_fp8_warp_groups(__nv_bfloat16* __restrict__ out, const float* __restrict__ scale_a,
                         const float* __restrict__ scale_b, const __grid_constant__ CUtensorMap map_a,
                         const __grid_constant__ CUtensorMap map_b, int m, int n, int steps, Tiles tiles,
                         bool vector_stores) {
  extern __shared__ uint8_t buffer[];
  __shared__ __align__(8) uint64_t full_barriers[kStages], empty_barriers[kStages];
  const uint32_t stages = (shared_address(buffer) + 1023) & ~1023u;
  const uint32_t full = shared_address(full_barriers), empty = shared_address(empty_barriers);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full + stage * 8, 1);
      barrier_init(empty + stage * 8, kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the copy engine has to see them too
  }
  __syncthreads();

  const int count = tiles.rows * tiles.cols;
  int stage = 0;
  uint32_t parity = 0;  // of the phase that this pass over the stages is
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      for (int index = blockIdx.x; index < count; index += gridDim.x) {
        int row, col;
        place_of(index, tiles, row, col);
        for (int step = 0; step < steps; ++step) {
          const uint32_t target = stages + stage * kStageBytes, barrier = full + stage * 8;
          barrier_wait(empty + stage * 8, parity ^ 1);
          barrier_expect(barrier, kStageBytes);
          copy_box(target, map_a, step * kRowBytes, row, barrier);
          copy_box(target + kBytesA, map_b, step * kRowBytes, col, barrier);
          if (++stage == kStages) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
      float totals[64] = {};
      for (int step = 0; step < steps; ++step) {
        barrier_wait(full + stage * 8, parity);
        __syncwarp();  // lanes may leave the wait in different turns; wgmma needs the whole warp
        const uint64_t a_descriptor = descriptor_of(stages + stage * kStageBytes + group * 64 * kRowBytes);
        const uint64_t b_descriptor = descriptor_of(stages + stage * kStageBytes + kBytesA);
        float sums[64];
        group_fence();
#pragma unroll
        for (int part = 0; part < kRowBytes / 32; ++part) {  // 32 bytes further is 2 in a descriptor
          multiply_add(sums, a_descriptor + 2 * part, b_descriptor + 2 * part, part > 0);
        }
        group_commit();
        group_wait();
        settle(sums);
        if (lane == 0) barrier_arrive(empty + stage * 8);
#pragma unroll
        for (int i = 0; i < 64; ++i) totals[i] += sums[i];
        if (++stage == kStages) stage = 0, parity ^= 1;
      }

      int row, col;
      place_of(index, tiles, row, col);
      const int r = row + group * 64 + warp * 16 + lane / 4;
      const float row_scales[2] = {r < m ? scale_a[r] : 0.0f, r + 8 < m ? scale_a[r + 8] : 0.0f};
#pragma unroll
      for (int strips = 0; strips < kTileN / 8; strips += 4) {
        float col_scales[4][2];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int c = col + 8 * (strips + j) + lane % 4 * 2;
          col_scales[j][0] = c < n ? scale_b[c] : 0.0f;
          col_scales[j][1] = c + 1 < n ? scale_b[c + 1] : 0.0f;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t words[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float* pair = &totals[4 * (strips + j) + 2 * half];
            words[j] = fragments::pair_of(pair[0] * row_scales[half] * col_scales[j][0],
                                          pair[1] * row_scales[half] * col_scales[j][1]);
          }
          fragments::transpose_quad(words);
          if (r + 8 * half < m) {
            __nv_bfloat16* out_row = out + static_cast<int64_t>(r + 8 * half) * n;
            fragments::store_strip(out_row, col + 8 * (strips + lane % 4), n, words, vector_stores);
          }
        }
      }
    }
  }
}

// Rows of k bytes, read in boxes of 128 x `box_rows`. False where the driver refuses.
bool describe(CUtensorMap* map, const void* data, int64_t rows, int64_t k, int box_rows) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  // Through the runtime, so that the library does not have to be linked with the driver's.
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // the caller goes on without TMA, and its own check must not see this error
    return false;
  }
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitches[1] = {static_cast<cuuint64_t>(k)};
  const cuuint32_t box[2] = {kRowBytes, static_cast<cuuint32_t>(box_rows)}, every[2] = {1, 1};
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
             map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), sizes, pitches, box, every,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool gemm_fp8_by_warp_groups(void* out, const void* a, const void* b, const float* scale_a, const float* scale_b,
                             int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
  CUtensorMap map_a, map_b;
  if (!describe(&map_a, a, m, k, kTileM) || !describe(&map_b, b, n, k, kTileN)) return false;
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const Tiles tiles{static_cast<int>((m + kTileM - 1) / kTileM), static_cast<int>((n + kTileN - 1) / kTileN)};
  const int64_t count = static_cast<int64_t>(tiles.rows) * tiles.cols;
  cudaFuncSetAttribute(gemm_fp8_warp_groups, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  const bool vector_stores = n % 8 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
  const auto blocks = static_cast<unsigned>(count < processors ? count : processors);
  gemm_fp8_warp_groups<<<blocks, kThreads, kSharedBytes, stream>>>(
      static_cast<__nv_bfloat16*>(out), scale_a, scale_b, map_a, map_b, static_cast<int>(m), static_cast<int>(n),
      static_cast<int>((k + kRowBytes - 1) / kRowBytes), tiles, vector_stores);
  return true;
}
