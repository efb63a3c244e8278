// Products of a SwiGLU block by wgmma and TMA, for capability 9.0 (sm_90a): see hopper.cuh.
//
// The first kernel makes gate and up together: of the 128 rows of b in a stage, 64 are rows of w_gate and 64 the same
// rows of w_up, so that a thread holds both sums of an element. Its tiles are 256 x 64, those of the plain product
// 256 x 128.

#include "hopper.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "gate.cuh"
#include "hopper.cuh"
#include "store.cuh"

namespace {

using namespace hopper;
using T = __nv_bfloat16;

struct Tiles {
  int rows, cols;
};

// Bands of 16 rows of tiles: the 132 tiles under way at one time are about 16 x 8, or 4096 rows of a by 1024 of b.
template <bool GATED>
__device__ __forceinline__ void place_of(int index, Tiles tiles, int& row, int& col) {
  constexpr int kBand = 16;
  const int band = index / (kBand * tiles.cols), within = index % (kBand * tiles.cols);
  const int height = min(tiles.rows - band * kBand, kBand);
  row = (band * kBand + within % height) * kTileM;
  col = within / height * (GATED ? kTileN / 2 : kTileN);
}

template <bool GATED>
__global__ void __launch_bounds__(kThreads, 1)
    mlp_warp_groups(T* __restrict__ out, const __grid_constant__ CUtensorMap map_a,
                    const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_up, int m, int n,
                    int steps, Tiles tiles, bool vector_stores) {
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
        place_of<GATED>(index, tiles, row, col);
        for (int step = 0; step < steps; ++step) {
          const uint32_t target = stages + stage * kStageBytes, barrier = full + stage * 8;
          barrier_wait(empty + stage * 8, parity ^ 1);
          barrier_expect(barrier, kStageBytes);
          const int k = step * (kRowBytes / static_cast<int>(sizeof(T)));
          copy_box(target, map_a, k, row, barrier);
          copy_box(target + kBytesA, map_b, k, col, barrier);
          if (GATED) copy_box(target + kBytesA + kBytesB / 2, map_up, k, col, barrier);
          if (++stage == kStages) stage = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
      float sums[2][64];
      int before = 0;
      for (int step = 0; step < steps; ++step) {
        barrier_wait(full + stage * 8, parity);
        __syncwarp();  // lanes may leave the wait in different turns; wgmma needs the whole warp
        const uint32_t a = stages + stage * kStageBytes + group * 128 * kRowBytes;
        const uint64_t a_descriptors[2] = {descriptor_of(a), descriptor_of(a + 64 * kRowBytes)};
        const uint64_t b_descriptor = descriptor_of(stages + stage * kStageBytes + kBytesA);
        group_fence();
#pragma unroll
        for (int part = 0; part < kRowBytes / 32; ++part) {  // 32 bytes further is 2 in a descriptor
          multiply_add(T{}, sums[0], a_descriptors[0] + 2 * part, b_descriptor + 2 * part, step + part > 0);
          multiply_add(T{}, sums[1], a_descriptors[1] + 2 * part, b_descriptor + 2 * part, step + part > 0);
        }
        group_commit();
        // One step stays under way; the stage of the step before is used up.
        group_wait<1>();
        if (step > 0 && lane == 0) barrier_arrive(empty + before * 8);
        before = stage;
        if (++stage == kStages) stage = 0, parity ^= 1;
      }
      group_wait<0>();
      settle(sums[0]);
      settle(sums[1]);
      if (lane == 0) barrier_arrive(empty + before * 8);

      int row, col;
      place_of<GATED>(index, tiles, row, col);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + group * 128 + part * 64 + warp * 16 + lane / 4 + 8 * half;
#pragma unroll
          for (int strips = 0; strips < kTileN / (GATED ? 16 : 8); strips += 4) {
            uint32_t words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              const float* pair = &sums[part][4 * (strips + j) + 2 * half];
              const float* up = GATED ? pair + 32 : pair;  // 8 strips further
              words[j] = GATED ? fragments::pair_of(gated(pair[0], up[0]), gated(pair[1], up[1]))
                               : fragments::pair_of(pair[0], pair[1]);
            }
            fragments::transpose_quad(words);
            if (r < m) {
              T* out_row = out + static_cast<int64_t>(r) * n;
              fragments::store_strip(out_row, col + 8 * (strips + lane % 4), n, words, vector_stores);
            }
          }
        }
      }
    }
  }
}

// Rows of k elements of 16 bits, read in boxes of 64 x `box_rows`. False where the driver refuses.
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
  const cuuint64_t pitches[1] = {static_cast<cuuint64_t>(k) * 2};
  const cuuint32_t box[2] = {kRowBytes / 2, static_cast<cuuint32_t>(box_rows)}, every[2] = {1, 1};
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
             map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, pitches, box, every,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <bool GATED>
bool launch(void* out, const void* a, const void* b, const void* up, int64_t m, int64_t n, int64_t k,
            cudaStream_t stream) {
  constexpr int kCols = GATED ? kTileN / 2 : kTileN;
  CUtensorMap map_a, map_b, map_up;
  if (!describe(&map_a, a, m, k, kTileM) || !describe(&map_b, b, n, k, kCols) || !describe(&map_up, up, n, k, kCols)) {
    return false;
  }
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const Tiles tiles{static_cast<int>((m + kTileM - 1) / kTileM), static_cast<int>((n + kCols - 1) / kCols)};
  const int64_t count = static_cast<int64_t>(tiles.rows) * tiles.cols;
  const auto kernel = mlp_warp_groups<GATED>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  const bool vector_stores = n % 8 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
  const auto steps = static_cast<int>((k * 2 + kRowBytes - 1) / kRowBytes);
  kernel<<<static_cast<unsigned>(count < processors ? count : processors), kThreads, kSharedBytes, stream>>>(
      static_cast<T*>(out), map_a, map_b, map_up, static_cast<int>(m), static_cast<int>(n), steps, tiles,
      vector_stores);
  return true;
}

}  // namespace

bool product_by_warp_groups(void* out, const void* a, const void* b, int64_t m, int64_t n, int64_t k,
                            cudaStream_t stream) {
  return launch<false>(out, a, b, b, m, n, k, stream);
}

bool gated_by_warp_groups(void* out, const void* a, const void* gate, const void* up, int64_t m, int64_t n, int64_t k,
                          cudaStream_t stream) {
  return launch<true>(out, a, gate, up, m, n, k, stream);
}
