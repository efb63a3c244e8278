// Grouped matrix product by wgmma and TMA, for capability 9.0 (sm_90a): see hopper.cuh.
//
// Which tiles there are is known on the device only. Every block counts the experts' tiles once; then the warp that
// starts the copies looks up each tile and hands it to the others in shared memory, beside the tile's first stage.

#include "hopper.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "hopper.cuh"
#include "store.cuh"

namespace {

using namespace hopper;
using T = __nv_bfloat16;

constexpr int kMaxExperts = 512;

// Rows `row` to `end` - 1 of x, at most 256 of them, and columns from `col` on of the expert's weights.
struct __align__(16) Tile {
  int row, end, col, parts;  // parts of 64 rows; 0: there is no tile any more
};

struct Stages {
  uint32_t data, full, empty;  // shared addresses
  int stage = 0;
  uint32_t parity = 0;  // of the phase that this pass over the stages is

  __device__ uint32_t place() const { return data + stage * kStageBytes; }
  __device__ uint32_t full_barrier() const { return full + stage * 8; }
  __device__ uint32_t empty_barrier() const { return empty + stage * 8; }
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// until[e] = rows of tiles of experts 0 to e. One warp calls.
__device__ __forceinline__ void count_tiles(int* until, const int64_t* __restrict__ offsets, int experts) {
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane;
    int sum = before;
    if (expert < experts) sum += static_cast<int>((offsets[expert + 1] - offsets[expert] + kTileM - 1) / kTileM);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += below - before;
    }
    if (expert < experts) until[expert] = sum;
    before = __shfl_sync(0xffffffffu, sum, 31);
  }
}

// Tile number `index` and its expert, in bands of 16 rows of tiles: the 132 tiles under way at one time are about
// 16 x 8, so the tiles of an expert meet its weights at one time. One warp calls; all lanes get the same.
__device__ __forceinline__ Tile tile_of(int index, const int* until, const int64_t* __restrict__ offsets, int experts,
                                        int cols, int& expert) {
  constexpr int kBand = 16;
  const int rows = until[experts - 1];
  if (index >= rows * cols) return {};
  const int band = index / (kBand * cols), within = index % (kBand * cols), height = min(rows - band * kBand, kBand);
  const int row = band * kBand + within % height;
  expert = 0;
  for (int base = 0;; base += 32) {
    const int lane_expert = base + static_cast<int>(threadIdx.x % 32);
    const unsigned beyond = __ballot_sync(0xffffffffu, lane_expert < experts && until[lane_expert] > row);
    if (beyond != 0) {
      expert = base + __ffs(beyond) - 1;
      break;
    }
  }
  const int place = row - (expert > 0 ? until[expert - 1] : 0);
  const int first = static_cast<int>(offsets[expert]) + place * kTileM, end = static_cast<int>(offsets[expert + 1]);
  return {first, end, within / height * kTileN, min((end - first + kPartRows - 1) / kPartRows, kParts)};
}

__device__ __forceinline__ void store_part(T* __restrict__ out, const float (&sums)[64], int row, int end, int col,
                                           int n, bool vector_stores) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + threadIdx.x / 32 % 4 * 16 + lane / 4 + 8 * half;
    T* out_row = out + static_cast<int64_t>(r) * n;
#pragma unroll
    for (int strips = 0; strips < kTileN / 8; strips += 4) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = &sums[4 * (strips + j) + 2 * half];
        words[j] = fragments::pair_of(T{}, pair[0], pair[1]);
      }
      fragments::transpose_quad(words);
      if (r < end) fragments::store_strip<T>(out_row, col + 8 * (strips + lane % 4), n, words, vector_stores);
    }
  }
}

// All of k for PARTS parts of the tile, `group` and `group` + 2; leaves every stage empty. Sums of each PARTS are
// variables of their own: ptxas would let no multiplications overlap if one array served all.
template <int PARTS>
__device__ __forceinline__ void work_through(T* __restrict__ out, const Tile& tile, Stages& at, int steps, int group,
                                             int n, bool vector_stores) {
  const int lane = threadIdx.x % 32;
  float sums[PARTS > 0 ? PARTS : 1][64];
  uint32_t before = 0;
  for (int step = 0; step < steps; ++step) {
    barrier_wait(at.full_barrier(), at.parity);
    __syncwarp();  // lanes may leave the wait in different turns; wgmma needs the whole warp
    if constexpr (PARTS > 0) {
      const uint32_t a = at.place() + group * kPartBytes;
      const uint64_t b_descriptor = descriptor_of(at.place() + kBytesA);
      group_fence();
#pragma unroll
      for (int part = 0; part < kRowBytes / 32; ++part) {  // 32 bytes further is 2 in a descriptor
        multiply_add(T{}, sums[0], descriptor_of(a) + 2 * part, b_descriptor + 2 * part, step + part > 0);
        if constexpr (PARTS == 2) {
          multiply_add(T{}, sums[1], descriptor_of(a + 2 * kPartBytes) + 2 * part, b_descriptor + 2 * part,
                       step + part > 0);
        }
      }
      group_commit();
      // One step stays under way; the stage of the step before is used up.
      group_wait<1>();
    }
    if (step > 0 && lane == 0) barrier_arrive(before);
    before = at.empty_barrier();
    at.next();
  }
  group_wait<0>();
#pragma unroll
  for (int i = 0; i < PARTS; ++i) settle(sums[i]);
  if (lane == 0) barrier_arrive(before);
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    store_part(out, sums[i], tile.row + (group + 2 * i) * kPartRows, tile.end, tile.col, n, vector_stores);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    grouped_gemm_warp_groups(T* __restrict__ out, const __grid_constant__ CUtensorMap map_x,
                             const __grid_constant__ CUtensorMap map_weights, const int64_t* __restrict__ offsets,
                             int experts, int n, int steps, bool vector_stores) {
  extern __shared__ uint8_t buffer[];
  __shared__ __align__(8) uint64_t full_barriers[kStages], empty_barriers[kStages];
  __shared__ Tile tiles[kStages];  // of the tile whose first step is in this stage
  __shared__ int until[kMaxExperts];
  Stages at{(shared_address(buffer) + 1023) & ~1023u, shared_address(full_barriers), shared_address(empty_barriers)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(at.full + stage * 8, 1);
      barrier_init(at.empty + stage * 8, kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the copy engine has to see them too
  }
  if (threadIdx.x < 32) count_tiles(until, offsets, experts);
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x >= 32) return;
    for (int index = blockIdx.x;; index += gridDim.x) {
      int expert = 0;
      const Tile tile = tile_of(index, until, offsets, experts, (n + kTileN - 1) / kTileN, expert);
      if (threadIdx.x == 0) {
        barrier_wait(at.empty_barrier(), at.parity ^ 1);
        tiles[at.stage] = tile;
        if (tile.parts == 0) barrier_arrive(at.full_barrier());
        for (int step = 0; step < steps && tile.parts > 0; ++step) {
          barrier_wait(at.empty_barrier(), at.parity ^ 1);
          barrier_expect(at.full_barrier(), tile.parts * kPartBytes + kBytesB);
          const int k = step * (kRowBytes / static_cast<int>(sizeof(T)));
          for (int part = 0; part < tile.parts; ++part) {
            copy_box(at.place() + part * kPartBytes, map_x, k, tile.row + part * kPartRows, at.full_barrier());
          }
          copy_box(at.place() + kBytesA, map_weights, k, expert * n + tile.col, at.full_barrier());
          at.next();
        }
      }
      __syncwarp();
      if (tile.parts == 0) return;
    }
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int group = threadIdx.x / 128 - 1;
  for (;;) {
    barrier_wait(at.full_barrier(), at.parity);
    const Tile tile = tiles[at.stage];
    if (tile.parts == 0) return;
    const int parts = (tile.parts - group + 1) / 2;
    if (parts == 2) {
      work_through<2>(out, tile, at, steps, group, n, vector_stores);
    } else if (parts == 1) {
      work_through<1>(out, tile, at, steps, group, n, vector_stores);
    } else {
      work_through<0>(out, tile, at, steps, group, n, vector_stores);
    }
  }
}

// Rows of k elements, read in boxes of 64 x `box_rows`. False where the driver refuses.
bool describe(CUtensorMap* map, const void* data, int64_t rows, int64_t k, int box_rows) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  // Through the runtime, so that the library does not have to be linked with the driver's.
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // the other kernel runs instead, and must not be blamed
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

}  // namespace

bool grouped_gemm_by_warp_groups(void* out, const void* x, const void* weights, const int64_t* offsets,
                                 const Problem& problem, cudaStream_t stream) {
  const auto [tokens, experts, n, k] = problem;
  // An expert's last tile may be a part of one, so there are fewer than this.
  const int64_t most = (tokens / kTileM + experts) * ((n + kTileN - 1) / kTileN);
  if (experts > kMaxExperts || experts * n > INT32_MAX - kTileN || tokens > INT32_MAX - kTileM || k > INT32_MAX / 2 ||
      most > INT32_MAX - 65536) {
    return false;
  }
  CUtensorMap map_x, map_weights;
  if (!describe(&map_x, x, tokens, k, kPartRows) || !describe(&map_weights, weights, experts * n, k, kTileN)) {
    return false;
  }
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const auto kernel = grouped_gemm_warp_groups;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  const bool vector_stores = n % 8 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
  const auto steps = static_cast<int>((k * 2 + kRowBytes - 1) / kRowBytes);
  kernel<<<static_cast<unsigned>(most < processors ? most : processors), kThreads, kSharedBytes, stream>>>(
      static_cast<T*>(out), map_x, map_weights, offsets, static_cast<int>(experts), static_cast<int>(n), steps,
      vector_stores);
  return true;
}
