// Products a * b^T by wgmma, fed by the bulk tensor copy engine (TMA). sm_90a only.
//
// One block of three warp groups stays on each SM and works through tiles of 256 x 128. A warp of the first group does
// nothing but look up tiles and start copies: 128 bytes of k of both operands, up to 48 KiB, into one of four stages.
// The two others multiply parts of 64 rows, the first group parts 0 and 2, the second parts 1 and 3, by instructions
// of 64 x 128 that share their part of b. Where a tile has fewer rows, the parts without any are neither copied nor
// multiplied. Copies run ahead across tiles, so stores and the first loads of the next tile overlap.
// `full` of a stage is completed by the bytes that arrive, `empty` by the eight warps that have used it up.
// TMA lays rows of 128 bytes in its 128-byte swizzle, chunk c of row r at c ^ (r % 8), which is what the descriptors of
// wgmma say too; rows and columns beyond the operands arrive as zeros.

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace hopper {

constexpr int kTileM = 256, kTileN = 128, kRowBytes = 128, kStages = 4;
constexpr int kPartRows = 64, kPartBytes = kPartRows * kRowBytes, kParts = kTileM / kPartRows;
constexpr int kBytesA = kTileM * kRowBytes, kBytesB = kTileN * kRowBytes, kStageBytes = kBytesA + kBytesB;
constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // the swizzle repeats every 1024 bytes: stages start there
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

// A box of a matrix, from element `k` of row `row` on.
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap& map, int k, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(k), "r"(row), "r"(barrier)
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
#define SUMS_64(d) SUMS_16(d, 0), SUMS_16(d, 16), SUMS_16(d, 32), SUMS_16(d, 48)

// d (64 x 128) = a (64 x 32 bytes) * b (128 x 32 bytes)^T, plus d if `add`. Column 8 * j + 2 * q + e of row 16 * w + g
// (+ 8) is d[4 * j + e] (+ 2) of lane 4 * g + q of warp w.
#define DEFINE_MULTIPLY_ADD(T, SHAPE, KIND, FLAGS)                                                             \
  __device__ __forceinline__ void multiply_add(T, float(&d)[64], uint64_t a, uint64_t b, bool add) {           \
    asm volatile(                                                                                              \
        "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                                                      \
        "wgmma.mma_async.sync.aligned." SHAPE ".f32." KIND "." KIND " {"                                       \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                               \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                     \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                     \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                    \
        "%64, %65, add, " FLAGS ";\n}"                                                                         \
        : SUMS_64(d)                                                                                           \
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                         \
  }
// Flags: neither operand negated, and for 16 bits neither transposed.
DEFINE_MULTIPLY_ADD(__nv_bfloat16, "m64n128k16", "bf16", "1, 1, 0, 0")
#undef DEFINE_MULTIPLY_ADD

__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Returns when at most PENDING committed groups of multiplications are under way.
template <int PENDING>
__device__ __forceinline__ void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from reading sums before the wait above this.
__device__ __forceinline__ void settle(float (&d)[64]) {
#pragma unroll
  for (float& sum : d) asm volatile("" : "+f"(sum)::"memory");
}

}  // namespace hopper
