// The instructions of capability 9.0 for which CUDA C++ has no words: barriers in shared memory, bulk tensor copies
// (TMA), matrix products of a warp group (wgmma). sm_90a only.

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace hopper {

// What copies and descriptors have to know of D columns, a multiple of 32.
template <int D>
struct Columns {
  static constexpr int kCount = D % 64 == 0 ? 64 : 32, kParts = D / kCount;
  static constexpr int kBytes = kCount * 2;  // of a row of a part, and the width of the swizzle
};

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
// One group waits, the other lets it go on.
__device__ __forceinline__ void take_turn(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void pass_turn(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

// N rows from `row` on of one head, all parts of columns one behind the other.
template <int D, int N>
__device__ __forceinline__ void copy_rows(uint32_t shared, const CUtensorMap& map, int row, int head, int batch,
                                          uint32_t barrier) {
  using C = Columns<D>;
  barrier_expect(barrier, N * D * 2);
#pragma unroll
  for (int part = 0; part < C::kParts; ++part) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared + part * N * C::kBytes),
        "l"(reinterpret_cast<uint64_t>(&map)), "r"(part * C::kCount), "r"(row), "r"(head), "r"(batch), "r"(barrier)
        : "memory");
  }
}

// Bits 0-13 the address / 16, 16-29 the distance of parts / 16 where columns are not summed over, 32-45 the distance of
// groups of 8 rows / 16, 62-63 the swizzle (1: 128 bytes, 2: 64).
template <int D>
__device__ __forceinline__ uint64_t descriptor_of(uint32_t shared, int part_bytes) {
  constexpr int kBytes = Columns<D>::kBytes;
  constexpr uint64_t kFixed = (kBytes == 128 ? 1ull : 2ull) << 62 | static_cast<uint64_t>(8 * kBytes >> 4) << 32;
  return kFixed | static_cast<uint64_t>(part_bytes >> 4) << 16 | (shared & 0x3ffff) >> 4;
}

#define SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_8(d, i) SUMS_4(d, i), SUMS_4(d, i + 4)
#define SUMS_32(d) SUMS_8(d, 0), SUMS_8(d, 8), SUMS_8(d, 16), SUMS_8(d, 24)
#define SUMS_40(d) SUMS_32(d), SUMS_8(d, 32)
#define SUMS_48(d) SUMS_40(d), SUMS_8(d, 40)
#define SUMS_64(d) SUMS_48(d), SUMS_8(d, 48), SUMS_8(d, 56)
#define NAMES_32                                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_40 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_48 NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Column 8 * j + 2 * q + e of row 16 * w + g (+ 8) is d[4 * j + e] (+ 2) of lane 4 * g + q of warp w.
// d (64 x n) = a (64 x 16) * b (n x 16)^T, both in shared memory, plus d if `add`.
#define DEFINE_SCORES(T, KIND, N, R, OPERANDS, ADD)                                                              \
  __device__ __forceinline__ void multiply(T, float(&d)[R], uint64_t a, uint64_t b, bool add) {                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                            \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." KIND "." KIND " {" NAMES_##R "}, " OPERANDS    \
                 ", add, 1, 1, 0, 0;\n}"                                                                         \
                 : SUMS_##R(d)                                                                                   \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                                  \
  }
// d (64 x n) += a (64 x 16) * b (16 x n), a in registers: the layout of d, two columns in each.
#define DEFINE_OUTPUTS(T, KIND, N, R, OPERANDS, ADD)                                                             \
  __device__ __forceinline__ void multiply(T, float(&d)[R], const uint32_t(&a)[4], uint64_t b) {                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                            \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." KIND "." KIND " {" NAMES_##R "}, " OPERANDS    \
                 ", add, 1, 1, 1;\n}"                                                                            \
                 : SUMS_##R(d)                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                                  \
  }
#define DEFINE_ALL(T, KIND)                                                                     \
  DEFINE_SCORES(T, KIND, "80", 40, "%40, %41", "%42")                                           \
  DEFINE_SCORES(T, KIND, "128", 64, "%64, %65", "%66")                                          \
  DEFINE_OUTPUTS(T, KIND, "64", 32, "{%32, %33, %34, %35}, %36", "%37")                         \
  DEFINE_OUTPUTS(T, KIND, "96", 48, "{%48, %49, %50, %51}, %52", "%53")                         \
  DEFINE_OUTPUTS(T, KIND, "128", 64, "{%64, %65, %66, %67}, %68", "%69")
DEFINE_ALL(__half, "f16")
DEFINE_ALL(__nv_bfloat16, "bf16")

__device__ __forceinline__ void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Returns when at most PENDING committed groups of multiplications are under way.
template <int PENDING>
__device__ __forceinline__ void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving what is done with registers across this place.
template <int R>
__device__ __forceinline__ void settle(float (&d)[R]) {
#pragma unroll
  for (float& value : d) asm volatile("" : "+f"(value)::"memory");
}
template <int R>
__device__ __forceinline__ void settle(uint32_t (&d)[R][4]) {
#pragma unroll
  for (auto& four : d) asm volatile("" : "+r"(four[0]), "+r"(four[1]), "+r"(four[2]), "+r"(four[3])::"memory");
}

}  // namespace hopper
