// Building blocks of products a * b^T on tensor cores by mma.sync (sm_80 and later), both operands running along k.
//
// A block of 256 threads makes a 128 x 128 tile. cp.async brings 128 bytes of k of both operands into one of three
// stages of shared memory while the stages before are multiplied; 96 KiB leave room for a second block on the SM.
// Rows of a stage are 128 bytes, and chunk c of 16 bytes lies at place c ^ (row % 8), so that neither the copies nor
// ldmatrix (8 rows at one c) meet a bank twice. All positions are in bytes: 8-bit and 16-bit elements look alike, a
// fragment of m16n8k16 with 16 bits being that of m16n8k32 with 8.
// What lies beyond the rows or beyond k is filled with zeros. Rows that are not aligned to 16 bytes are gathered
// element by element.

#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>

namespace tile {

constexpr int kTile = 128, kThreads = 256, kRowBytes = 128, kStages = 3;
constexpr int kOperandBytes = kTile * kRowBytes, kStageBytes = 2 * kOperandBytes;
constexpr int kSharedBytes = kStages * kStageBytes;

// COUNT rows from `rows` on, bytes `start` to `start` + 127 of each. `pitch` is from row to row, `row_bytes` where k
// ends, `valid` the number of rows that exist (at least 1). T is what is read where 16 bytes are not aligned.
template <typename T, bool VECTORS, int COUNT>
__device__ __forceinline__ void load_rows(uint32_t shared, const T* rows, int64_t pitch, int64_t valid, int64_t start,
                                          int64_t row_bytes) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(rows);
  const int chunk = threadIdx.x % 8;
  const int64_t byte = start + chunk * 16;
#pragma unroll
  for (int i = 0; i < COUNT / (kThreads / 8); ++i) {
    const int row = threadIdx.x / 8 + i * (kThreads / 8);
    const uint32_t target = shared + row * kRowBytes + ((chunk ^ (row % 8)) * 16);
    const int64_t left = row < valid ? row_bytes - byte : 0;
    const uint8_t* source = left > 0 ? bytes + row * pitch + byte : bytes;  // a valid address even for no bytes
    if constexpr (VECTORS) {
      const int count = left > 0 ? 16 : 0;  // k is a whole number of chunks
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target),
                   "l"(__cvta_generic_to_global(source)), "r"(count)
                   : "memory");
    } else {
      constexpr int kElements = 16 / sizeof(T);
      alignas(16) T parts[kElements];
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const bool inside = static_cast<int64_t>(e * sizeof(T)) < left;
        parts[e] = inside ? reinterpret_cast<const T*>(source)[e] : T{};
      }
      uint4 words;
      memcpy(&words, parts, sizeof(words));  // reading T as uint4 through a pointer would break strict aliasing
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(target), "r"(words.x), "r"(words.y),
                   "r"(words.z), "r"(words.w)
                   : "memory");
    }
  }
}

// Four 8 x 8 matrices of 16 bits; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&words)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

#define DEFINE_MULTIPLY_ADD(T, SHAPE, KIND)                                                                         \
  __device__ __forceinline__ void multiply_add(T, float(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {   \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." KIND "." KIND ".f32 "                                      \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                    \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                     \
  }
DEFINE_MULTIPLY_ADD(__nv_bfloat16, "m16n8k16", "bf16")
#undef DEFINE_MULTIPLY_ADD

// One stage: 64 rows of a from `a_row` on, times two groups of 16 rows of b; sums[i][j] is 16 x 8, b's groups are
// j = 0, 1 and j = 2, 3.
template <typename T>
__device__ __forceinline__ void multiply(float (&sums)[4][4][4], uint32_t a_stage, uint32_t b_stage, int a_row,
                                         const int (&b_rows)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kRowBytes / 32; ++step) {
    uint32_t a[4][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // matrices: rows 0-7, rows 8-15, then both again 16 bytes further
      const int row = a_row + 16 * i + lane % 16, chunk = 2 * step + lane / 16;
      load_matrices(a[i], a_stage + row * kRowBytes + ((chunk ^ (row % 8)) * 16));
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {  // matrices: rows 0-7 and 16 bytes further, then rows 8-15 alike
      const int row = b_rows[j] + lane / 16 * 8 + lane % 8, chunk = 2 * step + lane / 8 % 2;
      load_matrices(b[j], b_stage + row * kRowBytes + ((chunk ^ (row % 8)) * 16));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) multiply_add(T{}, sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// All of k: `load(stage, step)` starts the copies of stage number `step`, a at `stage` and b kOperandBytes further.
template <typename T, typename Load>
__device__ __forceinline__ void multiply_stages(float (&sums)[4][4][4], uint32_t shared, int64_t steps, int a_row,
                                                const int (&b_rows)[2], const Load& load) {
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) load(shared + step * kStageBytes, static_cast<int64_t>(step));
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  int now = 0, next = kStages - 1;
  for (int64_t step = 0; step < steps; ++step) {
    // Stage `now` has come, and everybody is through with the one before, which is `next`.
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    if (step + kStages - 1 < steps) load(shared + next * kStageBytes, step + kStages - 1);
    asm volatile("cp.async.commit_group;" ::: "memory");
    multiply<T>(sums, shared + now * kStageBytes, shared + now * kStageBytes + kOperandBytes, a_row, b_rows);
    now = now + 1 == kStages ? 0 : now + 1;
    next = next + 1 == kStages ? 0 : next + 1;
  }
}

struct Place {
  int64_t row, col;
};

// Tile number `index` of rows x cols tiles, in bands of BAND rows, so that what runs at one time shares both operands.
template <int BAND>
__device__ __forceinline__ Place place_of(int64_t index, int64_t rows, int64_t cols) {
  const int64_t band = index / (BAND * cols), within = index % (BAND * cols);
  const int64_t height = rows - band * BAND < BAND ? rows - band * BAND : BAND;
  return {band * BAND + within % height, within / height};
}

}  // namespace tile
