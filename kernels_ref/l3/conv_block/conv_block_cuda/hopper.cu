// Convolution, bias, SiLU and residual add by wgmma and TMA, for capability 9.0 (sm_90a): see hopper.cuh and plan.h.

#include "hopper.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "fragments.cuh"
#include "hopper.cuh"
#include "plan.h"

namespace {

using namespace hopper;

struct Problem {
  int batch, in_channels, out_channels, height, width;
  int run;  // neighbouring pixels of a tile that are stored at one time
  Boxes boxes;
  Plan plan;

  __device__ int image() const { return height * width; }
};

struct Operands {
  void* out;
  const void *bias, *residual;
};

struct Corner {
  int x, y, image;  // the first pixel of a tile
};
__device__ __forceinline__ Corner corner_of(const Boxes& boxes, int tile) {
  const int row = tile / boxes.across;
  return {tile % boxes.across * boxes.w, row % boxes.down * boxes.h, row / boxes.down * boxes.n};
}

// Starts the copies of one piece of work, over all input channels and filter positions. One thread calls.
template <int COLUMNS>
__device__ __forceinline__ void feed(const CUtensorMap& map_x, const CUtensorMap& map_weight, const Problem& p,
                                     const Plan::Work& work, Ring<COLUMNS>& ring) {
  const Corner corner = corner_of(p.boxes, work.tile);
  const uint32_t bytes = work.count * kUnitBytes + p.boxes.w * p.boxes.h * p.boxes.n * kRowBytes;
  for (int c = 0; c < p.in_channels; c += kDepth) {
    for (int tap = 0; tap < 9; ++tap) {
      barrier_wait(ring.empty_barrier(), ring.parity ^ 1);
      const uint32_t barrier = ring.full_barrier();
      barrier_expect(barrier, bytes);
      for (int unit = 0; unit < work.count; ++unit) {
        copy_weights(ring.place() + unit * kUnitBytes, map_weight, c, tap, (work.row + unit) * kUnitRows, barrier);
      }
      copy_pixels(ring.place() + kBytesA, map_x, c, corner.x + tap % 3 - 1, corner.y + tap / 3 - 1, corner.image,
                  barrier);
      ring.next();
    }
  }
}

// Where the tile's pixels lie in `out`, counted from channel 0 of its first image; -1 for none.
__device__ __forceinline__ void place_pixels(int* places, const Problem& p, const Corner& corner) {
  for (int i = threadIdx.x % 128; i < kMaxColumns; i += 128) {
    const int row = i / p.boxes.w, x = corner.x + i % p.boxes.w, y = corner.y + row % p.boxes.h;
    const int image = row / p.boxes.h;
    const bool exists = image < p.boxes.n && corner.image + image < p.batch && y < p.height && x < p.width;
    places[i] = exists ? image * p.out_channels * p.image() + y * p.width + x : -1;
  }
}

// Of 64 channels from `first` on, one of the two whose sums this thread has.
__device__ __forceinline__ int channel_of(int first, int half) {
  return first + static_cast<int>(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4) + 8 * half;
}

// Eight pixels of a channel, whose places are given, in runs of 8, 4 or 1.
template <typename T>
__device__ __forceinline__ void store_pixels(T* channel, const int* places, int run, const uint32_t (&words)[4]) {
  if (run == 8) {
    if (places[0] < 0) return;
    __stcs(reinterpret_cast<uint4*>(channel + places[0]), make_uint4(words[0], words[1], words[2], words[3]));
  } else if (run == 4) {
    if (places[0] >= 0) __stcs(reinterpret_cast<uint2*>(channel + places[0]), make_uint2(words[0], words[1]));
    if (places[4] >= 0) __stcs(reinterpret_cast<uint2*>(channel + places[4]), make_uint2(words[2], words[3]));
  } else {
    uint32_t now = words[0], later[3] = {words[1], words[2], words[3]};
#pragma unroll 1
    for (int e = 0; e < 8; e += 2) {  // a loop, because this is the rare case: words move up instead of an index
      T parts[2];
      memcpy(parts, &now, sizeof(parts));
      if (places[e] >= 0) channel[places[e]] = parts[0];
      if (places[e + 1] >= 0) channel[places[e + 1]] = parts[1];
      now = later[0], later[0] = later[1], later[1] = later[2];
    }
  }
}

// The same, read.
template <typename T>
__device__ __forceinline__ void load_pixels(uint32_t (&words)[4], const T* channel, const int* places, int run) {
  uint4 bits{};
  if (run == 8) {
    if (places[0] >= 0) bits = __ldcs(reinterpret_cast<const uint4*>(channel + places[0]));
  } else if (run == 4) {
    uint2 low{}, high{};
    if (places[0] >= 0) low = __ldcs(reinterpret_cast<const uint2*>(channel + places[0]));
    if (places[4] >= 0) high = __ldcs(reinterpret_cast<const uint2*>(channel + places[4]));
    bits = make_uint4(low.x, low.y, high.x, high.y);
  } else {
#pragma unroll 1
    for (int e = 0; e < 8; e += 2) {
      T parts[2]{};
      if (places[e] >= 0) parts[0] = channel[places[e]];
      if (places[e + 1] >= 0) parts[1] = channel[places[e + 1]];
      bits.x = bits.y, bits.y = bits.z, bits.z = bits.w;
      memcpy(&bits.w, parts, sizeof(bits.w));
    }
  }
  words[0] = bits.x, words[1] = bits.y, words[2] = bits.z, words[3] = bits.w;
}

// What is added to a thread's sums before and after SiLU.
template <typename T, int COUNT>
struct Rest {
  uint32_t words[2][(COUNT + 15) / 16][4];  // as they lie in `residual`: eight pixels of one strip
  float bias[2];

  __device__ __forceinline__ void load(const T* __restrict__ biases, const T* __restrict__ residual, const Problem& p,
                                       int image, int first, const int* places) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int o = channel_of(first, half);
      const T* channel = residual + (static_cast<int64_t>(image) * p.out_channels + o) * p.image();
      bias[half] = o < p.out_channels ? static_cast<float>(biases[o]) : 0.0f;
#pragma unroll
      for (int i = 0; i < (COUNT + 15) / 16; ++i) {
        uint32_t(&to)[4] = words[half][i];
        to[0] = to[1] = to[2] = to[3] = 0;
        if (o < p.out_channels) load_pixels(to, channel, places + 8 * (4 * i + threadIdx.x % 4), p.run);
      }
    }
  }
};

__device__ __forceinline__ float silu(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// The sums of 64 channels from `first` on.
template <typename T, int COUNT>
__device__ __forceinline__ void store_unit(T* __restrict__ out, const float (&sums)[COUNT], Rest<T, COUNT>& rest,
                                           const Problem& p, int image, int first, const int* places) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int o = channel_of(first, half);
    T* channel = out + (static_cast<int64_t>(image) * p.out_channels + o) * p.image();
#pragma unroll
    for (int i = 0; i < (COUNT + 15) / 16; ++i) {
      uint32_t(&words)[4] = rest.words[half][i];
      fragments::transpose_quad(words);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 16 * i + 4 * j + 2 * half;
        if (at >= COUNT) continue;
        const float2 added = fragments::floats_of(T{}, words[j]);
        words[j] = fragments::pair_of(T{}, added.x + silu(sums[at] + rest.bias[half]),
                                      added.y + silu(sums[at + 1] + rest.bias[half]));
      }
      fragments::transpose_quad(words);
      if (o < p.out_channels) store_pixels(channel, places + 8 * (4 * i + threadIdx.x % 4), p.run, words);
    }
  }
}

// All stages of a piece of work that has no unit for this warp group.
template <int COLUMNS>
__device__ __forceinline__ void skip(Ring<COLUMNS>& ring, int steps) {
  for (int step = 0; step < steps; ++step) {
    barrier_wait(ring.full_barrier(), ring.parity);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty_barrier());
    ring.next();
  }
}

// Multiplies unit `group` of all stages of a piece of work; calls `meanwhile` before the last products are waited for.
template <typename T, int COLUMNS, typename Meanwhile>
__device__ __forceinline__ void multiply(float (&sums)[COLUMNS / 2], Ring<COLUMNS>& ring, int steps, int group,
                                         const Meanwhile& meanwhile) {
  const int lane = threadIdx.x % 32;
  uint32_t before = 0;
  for (int step = 0; step < steps; ++step) {
    barrier_wait(ring.full_barrier(), ring.parity);
    __syncwarp();  // lanes may leave the wait in different turns; wgmma needs the whole warp
    const uint64_t a = descriptor_of(ring.place() + group * kUnitBytes), b = descriptor_of(ring.place() + kBytesA);
    group_fence();
#pragma unroll
    for (int part = 0; part < kRowBytes / 32; ++part) {  // 32 bytes further is 2 in a descriptor
      multiply_add(T{}, sums, a + 2 * part, b + 2 * part, step + part > 0);
    }
    group_commit();
    // One step stays under way; the stage of the step before is used up.
    group_wait<1>();
    if (step > 0 && lane == 0) barrier_arrive(before);
    before = ring.empty_barrier();
    ring.next();
  }
  meanwhile();
  group_wait<0>();
  settle(sums);
  if (lane == 0) barrier_arrive(before);
}

template <typename T, int COLUMNS>
__global__ void __launch_bounds__(kThreads, 1)
    product_warp_groups(T* __restrict__ out, const T* __restrict__ bias, const T* __restrict__ residual,
                        const __grid_constant__ CUtensorMap map_x,
                        const __grid_constant__ CUtensorMap map_weight, const __grid_constant__ Problem p) {
  extern __shared__ uint8_t buffer[];
  constexpr int kStages = Ring<COLUMNS>::kStages;
  __shared__ __align__(8) uint64_t full_barriers[kStages], empty_barriers[kStages];
  __shared__ int group_places[2][kMaxColumns];
  Ring<COLUMNS> ring{(shared_address(buffer) + 1023) & ~1023u, shared_address(full_barriers),
                     shared_address(empty_barriers)};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(ring.full + stage * 8, 1);
      barrier_init(ring.empty + stage * 8, kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the copy engine has to see them too
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 0) return;
    for (int slot = blockIdx.x; slot < p.plan.slots; slot += gridDim.x) {
      for (int turn = 0; turn < 2; ++turn) {
        const Plan::Work work = p.plan.work(slot, turn);
        if (work.count > 0) feed(map_x, map_weight, p, work, ring);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int group = threadIdx.x / 128 - 1, steps = 9 * ((p.in_channels + kDepth - 1) / kDepth);
  int* places = group_places[group];
  for (int slot = blockIdx.x; slot < p.plan.slots; slot += gridDim.x) {
    for (int turn = 0; turn < 2; ++turn) {
      const Plan::Work work = p.plan.work(slot, turn);
      if (work.count == 0) continue;
      if (group >= work.count) {
        skip(ring, steps);
        continue;
      }
      const Corner corner = corner_of(p.boxes, work.tile);
      group_barrier(1 + group);  // all have read the places of the work before
      place_pixels(places, p, corner);
      group_barrier(1 + group);
      float sums[COLUMNS / 2];
      const int first = (work.row + group) * kUnitRows;
      Rest<T, COLUMNS / 2> rest;
      multiply<T>(sums, ring, steps, group, [&] { rest.load(bias, residual, p, corner.image, first, places); });
      store_unit(out, sums, rest, p, corner.image, first, places);
    }
  }
}

// `sizes` of the axes, the innermost first, are read in boxes of `box`. False where the driver refuses.
template <int AXES>
bool describe(CUtensorMap* map, const void* data, bool bfloat16, const int64_t (&sizes)[AXES], const int (&box)[AXES]) {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  // Through the runtime, so that the library does not have to be linked with the driver's.
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // the caller goes on without TMA, and its own check must not see this error
    return false;
  }
  cuuint64_t extents[AXES], pitches[AXES - 1];
  cuuint32_t lengths[AXES], every[AXES];
  for (int i = 0; i < AXES; ++i) {
    extents[i] = static_cast<cuuint64_t>(sizes[i]);
    lengths[i] = static_cast<cuuint32_t>(box[i]);
    every[i] = 1;
    if (i > 0) pitches[i - 1] = extents[i - 1] * (i > 1 ? pitches[i - 2] : 2);
  }
  const auto type = bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode)(
             map, type, AXES, const_cast<void*>(data), extents, pitches, lengths, every,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <typename T, int COLUMNS>
void launch(const Operands& operands, const CUtensorMap& map_x, const CUtensorMap& map_weight, const Problem& p,
            int processors, cudaStream_t stream) {
  const auto kernel = product_warp_groups<T, COLUMNS>;
  constexpr int bytes = Ring<COLUMNS>::kSharedBytes;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<static_cast<unsigned>(std::min(p.plan.slots, processors)), kThreads, bytes, stream>>>(
      static_cast<T*>(operands.out), static_cast<const T*>(operands.bias), static_cast<const T*>(operands.residual),
      map_x, map_weight, p);
}

}  // namespace

bool conv_block_by_warp_groups(void* out, const void* x, const void* weight, const void* bias, const void* residual,
                               const Shape& s, bool bfloat16, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const auto [columns, boxes, plan] = Tiling::best(s, kUnitRows, processors);
  if (columns == 0 || 2 * s.pixels() < boxes.count * columns) return false;
  const bool aligned = (reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(residual)) % 16 == 0;
  const Problem p{static_cast<int>(s.batch),  static_cast<int>(s.padded), static_cast<int>(s.out_channels),
                  static_cast<int>(s.height), static_cast<int>(s.width),  aligned ? boxes.run(s) : 1,
                  boxes,                      plan};
  CUtensorMap map_x, map_weight;
  const int64_t x_sizes[4] = {s.padded, s.width, s.height, s.batch}, weight_sizes[3] = {s.padded, 9, s.out_channels};
  const int x_box[4] = {kDepth, boxes.w, boxes.h, boxes.n}, weight_box[3] = {kDepth, 1, kUnitRows};
  if (!describe(&map_x, x, bfloat16, x_sizes, x_box) ||
      !describe(&map_weight, weight, bfloat16, weight_sizes, weight_box)) {
    return false;
  }
  const auto start = [&](auto kind) {
    using T = decltype(kind);
    const auto run = columns == 256 ? launch<T, 256> : columns == 224 ? launch<T, 224> : launch<T, 200>;
    run({out, bias, residual}, map_x, map_weight, p, processors, stream);
  };
  if (bfloat16) {
    start(__nv_bfloat16{});
  } else {
    start(__half{});
  }
  return true;
}
