// Attention in one sweep over the keys by wgmma, fed by the bulk tensor copy engine (TMA). sm_90a only.
//
// One block of three warp groups stays on each SM and works through tiles of 128 queries of one head. A thread of the
// first group does nothing but start copies: queries into one of two buffers, N keys or N values at a time into one of
// four slots, in the order in which they are used (k0 k1 v0 k2 v1 ...), ahead across tiles. The two others have 64
// queries each. Scores of one tile of keys and the outputs of the tile before are under way together, and the softmax
// of the scores runs beside the latter; the groups start them in turns, so that the tensor cores have the work of one
// group while the other exponentiates. The accumulator of scores has the layout of a left operand in registers, so
// probabilities go into the second product without leaving them.
// `full` of a buffer is completed by the bytes that arrive, `empty` by the eight warps that have used it up.
// Rows lie in parts of 64 columns in the 128-byte swizzle, or of 32 in the 64-byte one; rows and columns beyond the
// operands arrive as zeros. Keys come from the last to the first: a row of scores is never masked as a whole, and where
// there is one sequence only the first tile has a mask.

#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "flash_attention.cuh"
#include "hopper.cuh"

namespace hopper {

constexpr int kRows = 128, kThreads = 384, kConsumerWarps = 8;
constexpr int kSlots = 4, kBuffers = 2;  // of keys or values, of queries

// Sequences end to end: PARTS of them, each with its own operands. Strides are in elements.
template <typename T, int PARTS>
struct Problem {
  T* out[PARTS];
  int64_t row_stride[PARTS], head_stride[PARTS], batch_stride[PARTS];  // of out
  int queries[PARTS], keys[PARTS];
  int heads, count, dim;  // count: of heads of all sequences
  float scale_log2;
};

template <int PARTS>
struct Maps {
  CUtensorMap q[PARTS], k[PARTS], v[PARTS];  // column, row, head, batch
};

// Starts s (64 x N) = q (64 of kRows) * k (N)^T.
template <typename T, int D, int N>
__device__ __forceinline__ void start_scores(float (&s)[N / 2], uint32_t q, uint32_t k) {
  using C = Columns<D>;
  const uint64_t left = descriptor_of<D>(q, 16), right = descriptor_of<D>(k, 16);
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    const int part = c / C::kCount, bytes = c % C::kCount * 2;
    multiply(T{}, s, left + ((part * kRows * C::kBytes + bytes) >> 4), right + ((part * N * C::kBytes + bytes) >> 4),
             c > 0);
  }
  group_commit();
}

// Starts o (64 x D) += p (64 x N) * v (N x D).
template <typename T, int D, int N>
__device__ __forceinline__ void start_outputs(float (&o)[D / 2], const uint32_t (&p)[N / 16][4], uint32_t v) {
  const uint64_t right = descriptor_of<D>(v, N * Columns<D>::kBytes);
#pragma unroll
  for (int k = 0; k < N / 16; ++k) multiply(T{}, o, p[k], right + (k * 16 * Columns<D>::kBytes >> 4));
  group_commit();
}

// Of the two rows of a thread, four lanes each; `sum` is of this thread's columns.
struct Softmax {
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};

  // Probabilities, not divided by their sum, replace the scores; `fade` is what older ones have to be multiplied with.
  template <int R>
  __device__ __forceinline__ void add(float (&s)[R], float (&fade)[2], float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = max[half];
#pragma unroll
      for (int i = 2 * half; i < R; i += 4) highest = fmaxf(highest, fmaxf(s[i], s[i + 1]));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
      const float shift = highest * scale_log2;
      fade[half] = power_of_two((max[half] - highest) * scale_log2);  // exactly 1 where the maximum stays
      max[half] = highest;
      sum[half] *= fade[half];
#pragma unroll
      for (int i = 2 * half; i < R; i += 4) {
        s[i] = power_of_two(s[i] * scale_log2 - shift);
        s[i + 1] = power_of_two(s[i + 1] * scale_log2 - shift);
        sum[half] += s[i] + s[i + 1];
      }
    }
  }
};

// Minus infinity from column limit[half] on.
template <int R>
__device__ __forceinline__ void mask(float (&s)[R], const int (&limit)[2]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (i / 4 * 8 + column + i % 2 >= limit[i / 2 % 2]) s[i] = -INFINITY;
  }
}

template <typename T, int R>
__device__ __forceinline__ void pack_scores(uint32_t (&p)[R / 8][4], const float (&s)[R]) {
#pragma unroll
  for (int i = 0; i < R; i += 2) p[i / 8][i / 2 % 4] = flash::pack<T>(s[i], s[i + 1]);
}

// Before: words[j] of lane q is word q of strip j, 8 columns. After: words[i] of lane q is word i of strip q.
__device__ __forceinline__ void transpose_quad(uint32_t (&words)[4]) {
  const int lane = threadIdx.x;
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      uint32_t &low = words[i], &high = words[i | step];
      const uint32_t other = __shfl_xor_sync(0xffffffffu, lane & step ? low : high, step);
      if (lane & step) low = other;
      else high = other;
    }
  }
}

// Two rows of each thread, divided by their sums.
template <typename T, int D>
__device__ __forceinline__ void store(const float (&o)[D / 2], const Softmax& softmax, T* out, int64_t stride, int row,
                                      int rows, int dim) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = softmax.sum[half];
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    const float inverse = 1.0f / total;
#pragma unroll
    for (int strips = 0; strips < D / 8; strips += 4) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = &o[4 * (strips + j) + 2 * half];
        words[j] = flash::pack<T>(pair[0] * inverse, pair[1] * inverse);
      }
      transpose_quad(words);
      const int column = 8 * (strips + static_cast<int>(threadIdx.x) % 4);
      if (row + 8 * half < rows && column < dim) {
        // One store: nvcc splits the assignment of words that an exchange has assembled into 4-byte ones.
        __stcg(reinterpret_cast<uint4*>(out + (row + 8 * half) * stride + column),
               make_uint4(words[0], words[1], words[2], words[3]));
      }
    }
  }
}

__device__ __forceinline__ int tiles_of(int length, int size) { return (length + size - 1) / size; }

// A tile of queries, and how many tiles of keys it sees.
template <int N, bool CAUSAL, int PARTS>
struct Tile {
  int head, batch, part = 0, row, steps = 0;

  template <typename T>
  __device__ __forceinline__ Tile(const Problem<T, PARTS>& problem, int tiles, int index) {
    head = index / tiles % problem.heads;
    batch = index / tiles / problem.heads;
    row = (tiles - 1 - index % tiles) * kRows;
    if constexpr (PARTS == 2) {
      const int first = tiles_of(problem.queries[0], kRows) * kRows;
      if (row >= first) part = 1, row -= first;
    }
    if constexpr (CAUSAL) {
      steps = tiles_of(min(row + kRows, problem.keys[0]), N);
    } else {
#pragma unroll
      for (int i = 0; i < PARTS; ++i) steps += tiles_of(problem.keys[i], N);
    }
  }
};

// Where the tile of keys number `step` lies: its sequence, its first row, and how many keys there are from there on.
template <int N, typename T, int PARTS>
__device__ __forceinline__ int keys_of(const Problem<T, PARTS>& problem, int step, int& part, int& row) {
  part = 0;
  row = step * N;
  if constexpr (PARTS == 2) {
    const int first = tiles_of(problem.keys[0], N) * N;
    if (row >= first) part = 1, row -= first;
  }
  return problem.keys[part] - row;
}

// The number of a block's tile in a round. Every other round goes backwards: with a mask tiles of a head shrink.
__device__ __forceinline__ int index_of(int round) {
  const int size = gridDim.x, block = blockIdx.x;
  return round * size + (round % 2 == 0 ? block : size - 1 - block);
}

// Which of COUNT buffers is next, and the parity of this pass over them.
template <int COUNT>
struct Ring {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++index == COUNT) index = 0, parity ^= 1;
  }
};

template <typename T, int D, int N, int PARTS, bool CAUSAL>
struct Block {
  static constexpr int kSlotBytes = N * D * 2, kQueryBytes = kRows * D * 2;
  static constexpr int kSharedBytes = kSlots * kSlotBytes + kBuffers * kQueryBytes + 1024;  // swizzles repeat: aligned
  using Place = Tile<N, CAUSAL, PARTS>;

  const Problem<T, PARTS>& problem;
  int tiles;
  uint32_t queries, slots, barriers;

  __device__ __forceinline__ uint32_t full(int slot) const { return barriers + slot * 8; }
  __device__ __forceinline__ uint32_t empty(int slot) const { return full(slot + kSlots); }
  __device__ __forceinline__ uint32_t query_full(int buffer) const { return full(buffer + 2 * kSlots); }
  __device__ __forceinline__ uint32_t query_empty(int buffer) const { return full(buffer + 2 * kSlots + kBuffers); }

  __device__ __forceinline__ void produce(const Maps<PARTS>& maps) const {
    Ring<kSlots> ring;
    Ring<kBuffers> buffer;
    const int count = problem.count * tiles;
    int index;
    for (int round = 0; (index = index_of(round)) < count; ++round) {
      const Place tile(problem, tiles, index);
      const auto copy = [&](const CUtensorMap* of, int step) {
        int part, row;
        keys_of<N>(problem, step, part, row);
        barrier_wait(empty(ring.index), ring.parity ^ 1);
        copy_rows<D, N>(slots + ring.index * kSlotBytes, of[part], row, tile.head, tile.batch, full(ring.index));
        ring.advance();
      };
      barrier_wait(query_empty(buffer.index), buffer.parity ^ 1);
      copy_rows<D, kRows>(queries + buffer.index * kQueryBytes, maps.q[tile.part], tile.row, tile.head, tile.batch,
                          query_full(buffer.index));
      buffer.advance();
      copy(maps.k, tile.steps - 1);
      for (int step = tile.steps - 1; step > 0; --step) {
        copy(maps.k, step - 1);
        copy(maps.v, step);
      }
      copy(maps.v, 0);
    }
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }

  __device__ __forceinline__ void mask_tail(float (&s)[N / 2], const Place& tile, int step, int row) const {
    int part, key;
    const int rest = keys_of<N>(problem, step, part, key);
    const bool diagonal = CAUSAL && key + N > tile.row;
    if (rest >= N && !diagonal) return;
    const int limit[2] = {diagonal ? min(rest, row - key + 1) : rest, diagonal ? min(rest, row - key + 9) : rest};
    mask(s, limit);
  }

  // Lanes may leave a wait in different turns, and what follows needs the whole warp.
  static __device__ __forceinline__ void warp_wait(uint32_t barrier, uint32_t parity) {
    barrier_wait(barrier, parity);
    __syncwarp();
  }

  __device__ __forceinline__ void consume() const {
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) - 1;  // one value for the warp: uniform registers
    const int own_row = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    Ring<kSlots> ring;
    Ring<kBuffers> buffer;
    const int count = problem.count * tiles;
    int index;
    if (group == 1) pass_turn(group);
    for (int round = 0; (index = index_of(round)) < count; ++round) {
      const Place tile(problem, tiles, index);
      const uint32_t q = queries + buffer.index * kQueryBytes + group * 64 * Columns<D>::kBytes;
      const int row = tile.row + own_row;
      float o[D / 2] = {}, fade[2];
      uint32_t p[N / 16][4];
      Softmax softmax;
      warp_wait(query_full(buffer.index), buffer.parity);
      warp_wait(full(ring.index), ring.parity);
      {
        float s[N / 2];
        group_fence();
        start_scores<T, D, N>(s, q, slots + ring.index * kSlotBytes);
        group_wait<0>();
        settle(s);
        release(empty(ring.index));
        ring.advance();
        mask_tail(s, tile, tile.steps - 1, row);
        softmax.add(s, fade, problem.scale_log2);
        pack_scores<T>(p, s);
      }
      warp_wait(full(ring.index), ring.parity);
      for (int step = tile.steps - 2; step >= 0; --step) {
        float s[N / 2];
        const int keys = ring.index;
        ring.advance();
        const int values = ring.index;
        settle(o);
        settle(p);
        take_turn(group);
        group_fence();
        start_scores<T, D, N>(s, q, slots + keys * kSlotBytes);
        warp_wait(full(values), ring.parity);
        group_fence();
        start_outputs<T, D, N>(o, p, slots + values * kSlotBytes);
        pass_turn(group);
        group_wait<1>();
        settle(s);
        release(empty(keys));
        if constexpr (PARTS == 2) mask_tail(s, tile, step, row);
        softmax.add(s, fade, problem.scale_log2);
        settle(s);
        // What is used next is waited for here: the branches of this wait keep ptxas from moving the exponentials
        // behind the wait for the outputs, where nothing would run beside them.
        ring.advance();
        warp_wait(full(ring.index), ring.parity);
        group_wait<0>();
        settle(o);
        settle(p);
        release(empty(values));
#pragma unroll
        for (int i = 0; i < D / 2; ++i) o[i] *= fade[i / 2 % 2];
        pack_scores<T>(p, s);
      }
      release(query_empty(buffer.index));
      buffer.advance();
      settle(o);
      settle(p);
      group_fence();
      start_outputs<T, D, N>(o, p, slots + ring.index * kSlotBytes);
      group_wait<0>();
      settle(o);
      release(empty(ring.index));
      ring.advance();
      T* const out = problem.out[tile.part] + tile.batch * problem.batch_stride[tile.part] +
                     tile.head * problem.head_stride[tile.part];
      store<T, D>(o, softmax, out, problem.row_stride[tile.part], row, problem.queries[tile.part], problem.dim);
    }
    if (group == 0) take_turn(group);
  }
};

template <typename T, int D, int N, int PARTS, bool CAUSAL>
__global__ void __launch_bounds__(kThreads, 1)
    attend(const __grid_constant__ Maps<PARTS> maps, const __grid_constant__ Problem<T, PARTS> problem, int tiles) {
  using Work = Block<T, D, N, PARTS, CAUSAL>;
  extern __shared__ uint8_t buffer[];
  __shared__ __align__(8) uint64_t barriers[2 * (kSlots + kBuffers)];
  const uint32_t shared = (shared_address(buffer) + 1023) & ~1023u;
  const Work work{problem, tiles, shared, shared + kBuffers * Work::kQueryBytes, shared_address(barriers)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) barrier_init(work.full(i), 1), barrier_init(work.empty(i), kConsumerWarps);
    for (int i = 0; i < kBuffers; ++i) {
      barrier_init(work.query_full(i), 1);
      barrier_init(work.query_empty(i), kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the copy engine has to see them too
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) work.produce(maps);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    work.consume();
  }
}

// Rows of `dim` elements of 16 bits; strides are in elements.
struct Operand {
  const void* data;
  int64_t rows, row_stride, head_stride, batch_stride;
};

// Boxes of `box_rows` rows and 64 or 32 columns. False where the driver refuses.
inline bool describe(CUtensorMap* map, const Operand& x, bool bfloat16, int64_t dim, int64_t heads, int64_t batch,
                     int box_rows, int box_columns) {
  static const auto encode = []() -> PFN_cuTensorMapEncodeTiled_v12000 {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    // Through the runtime, so that the library does not have to be linked with the driver's.
    const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                                        &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
      cudaGetLastError();  // the other kernel's launch is asked for its own
      return nullptr;
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  if (encode == nullptr) return false;
  const auto size = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[4] = {size(dim), size(x.rows), size(heads), size(batch)};
  const cuuint64_t pitches[3] = {size(x.row_stride * 2), size(x.head_stride * 2), size(x.batch_stride * 2)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t every[4] = {1, 1, 1, 1};
  return encode(map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
                const_cast<void*>(x.data), sizes, pitches, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Starts the kernel, N keys at a time; false, and nothing is started, where the driver refuses an operand.
// q, k, v: `rows` of problem.queries and problem.keys, heads and batch as in problem.
template <typename T, int D, int N, bool CAUSAL, int PARTS>
bool launch(const Problem<T, PARTS>& problem, const Operand (&q)[PARTS], const Operand (&k)[PARTS],
            const Operand (&v)[PARTS], cudaStream_t stream) {
  Maps<PARTS> maps;
  const int64_t batch = problem.count / problem.heads;
  int tiles = 0;
  for (int i = 0; i < PARTS; ++i) {
    const auto encode = [&](CUtensorMap* map, const Operand& x, int rows) {
      return describe(map, x, std::is_same_v<T, __nv_bfloat16>, problem.dim, problem.heads, batch, rows,
                      Columns<D>::kCount);
    };
    if (!encode(&maps.q[i], q[i], kRows) || !encode(&maps.k[i], k[i], N) || !encode(&maps.v[i], v[i], N)) return false;
    tiles += (problem.queries[i] + kRows - 1) / kRows;
  }
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const auto kernel = attend<T, D, N, PARTS, CAUSAL>;
  constexpr int kBytes = Block<T, D, N, PARTS, CAUSAL>::kSharedBytes;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const int64_t count = static_cast<int64_t>(problem.count) * tiles;
  kernel<<<static_cast<unsigned>(count < processors ? count : processors), kThreads, kBytes, stream>>>(maps, problem,
                                                                                                      tiles);
  return true;
}

}  // namespace hopper
