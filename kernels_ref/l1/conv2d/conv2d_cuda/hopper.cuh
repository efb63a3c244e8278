// Products of channels and pixels by wgmma, fed by the bulk tensor copy engine (TMA). sm_90a only.
//
// One block of three warp groups stays on each SM and works through tiles of 128 channels x COLUMNS pixels. A thread of
// the first group does nothing but start copies: 64 input channels at one filter position of both operands, up to 48
// KiB, into one of four or five stages. The two others multiply 64 channels of the tile each, by instructions of 64 x
// COLUMNS.
// Copies run ahead across tiles, so stores and the first loads of the next tile overlap.
// `full` of a stage is completed by the bytes that arrive, `empty` by the eight warps that have used it up.
// TMA lays rows of 128 bytes in its 128-byte swizzle, chunk c of row r at c ^ (r % 8), which is what the descriptors of
// wgmma say too; what lies outside of an operand arrives as zeros.

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace hopper {

constexpr int kUnitRows = 64, kMaxColumns = 256, kDepth = 64, kRowBytes = 128;
constexpr int kUnitBytes = kUnitRows * kRowBytes, kBytesA = 2 * kUnitBytes;
constexpr int kThreads = 384, kConsumerWarps = 8;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Returns once the phase of that parity is over; of a new barrier, the phase of parity 1 is.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  while (over == 0) {
    asm volatile(
        "{\n.reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
// Of the 128 threads of a warp group; 0 is __syncthreads.
__device__ __forceinline__ void group_barrier(int number) {
  asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory");
}

// The stages as a thread walks around them.
template <int COLUMNS>
struct Ring {
  static constexpr int kStageBytes = kBytesA + COLUMNS * kRowBytes;
  static constexpr int kStages = (227 - 4) * 1024 / kStageBytes;     // the rest is for barriers and places
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // stages start where the swizzle does, every 1024
  static_assert(kStageBytes % 1024 == 0);

  uint32_t data, full, empty;  // shared addresses of the stages and of their barriers
  int stage = 0;
  uint32_t parity = 0;  // of the phase that this pass over the stages is

  __device__ uint32_t place() const { return data + stage * kStageBytes; }
  __device__ uint32_t full_barrier() const { return full + stage * 8; }
  __device__ uint32_t empty_barrier() const { return empty + stage * 8; }
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Boxes of the weights (channel, filter position, output channel) and of the images (channel, x, y, image).
__device__ __forceinline__ void copy_weights(uint32_t shared, const CUtensorMap& map, int c, int tap, int o,
                                             uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(c), "r"(tap), "r"(o), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_pixels(uint32_t shared, const CUtensorMap& map, int c, int x, int y, int image,
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(c), "r"(x), "r"(y), "r"(image), "r"(barrier)
      : "memory");
}

// Of rows of 128 bytes in the 128-byte swizzle: bits 0-13 the address / 16, 32-45 the distance of groups of 8 rows
// / 16, 62-63 the swizzle (1: 128 bytes). Bits 16-29 mean nothing in this swizzle and are 1 by convention.
__device__ __forceinline__ uint64_t descriptor_of(uint32_t shared) {
  constexpr uint64_t kFixed = 1ull << 62 | static_cast<uint64_t>(8 * kRowBytes >> 4) << 32 | 1ull << 16;
  return kFixed | (shared & 0x3ffff) >> 4;
}

#define SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(d, i) SUMS_4(d, i), SUMS_4(d, i + 4), SUMS_4(d, i + 8), SUMS_4(d, i + 12)
#define SUMS_100(d) \
  SUMS_16(d, 0), SUMS_16(d, 16), SUMS_16(d, 32), SUMS_16(d, 48), SUMS_16(d, 64), SUMS_16(d, 80), SUMS_4(d, 96)
#define SUMS_112(d) SUMS_100(d), SUMS_4(d, 100), SUMS_4(d, 104), SUMS_4(d, 108)
#define SUMS_128(d) SUMS_112(d), SUMS_16(d, 112)
#define NAMES_100                                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "  \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "  \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "  \
  "%96, %97, %98, %99"
#define NAMES_112 NAMES_100 ", %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_128 \
  NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// d (64 x COLUMNS) = a (64 x 32 bytes) * b (COLUMNS x 32 bytes)^T, plus d if `add`. Column 8 * j + 2 * q + e of row
// 16 * w + g (+ 8) is d[4 * j + e] (+ 2) of lane 4 * g + q of warp w.
#define DEFINE_MULTIPLY_ADD(T, KIND, COLUMNS, COUNT, A, B, ADD)                                                \
  __device__ __forceinline__ void multiply_add(T, float(&d)[COUNT], uint64_t a, uint64_t b, bool add) {        \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                          \
                 "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." KIND "." KIND " {" NAMES_##COUNT "}, " \
                 A ", " B ", add, 1, 1, 0, 0;\n}"                                                              \
                 : SUMS_##COUNT(d)                                                                             \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                \
  }
// Flags: neither operand negated nor transposed.
DEFINE_MULTIPLY_ADD(__half, "f16", "200", 100, "%100", "%101", "%102")
DEFINE_MULTIPLY_ADD(__half, "f16", "224", 112, "%112", "%113", "%114")
DEFINE_MULTIPLY_ADD(__half, "f16", "256", 128, "%128", "%129", "%130")
DEFINE_MULTIPLY_ADD(__nv_bfloat16, "bf16", "200", 100, "%100", "%101", "%102")
DEFINE_MULTIPLY_ADD(__nv_bfloat16, "bf16", "224", 112, "%112", "%113", "%114")
DEFINE_MULTIPLY_ADD(__nv_bfloat16, "bf16", "256", 128, "%128", "%129", "%130")
#undef DEFINE_MULTIPLY_ADD

__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Returns when at most PENDING committed groups of multiplications are under way.
template <int PENDING>
__device__ __forceinline__ void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from reading sums before the wait above this.
template <int COUNT>
__device__ __forceinline__ void settle(float (&d)[COUNT]) {
#pragma unroll
  for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");
}

}  // namespace hopper
