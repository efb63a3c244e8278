// Attention in one sweep over the keys, with an online softmax, on tensor cores: float16 and bfloat16.
//
// Four warps share a tile of 128 queries, 32 each, so that every fragment of K and V that is read from shared memory
// feeds two products. Queries stay in shared memory, scores and outputs in registers: the accumulator of a score tile
// has the layout of a left operand, so probabilities go into the second product without leaving the registers.
// One buffer each for keys and values: values land while scores are made, the next keys while outputs are made.
// Rows in shared memory are padded by 16 bytes, which puts the eight rows of a matrix load into different banks.
//
// What is computed is said by a Problem; problem.head(index) gives a Head with
//   q(row), k(key), v(key), out(row)  addresses of `dim` elements
//   begin(row), end(row)              the keys that a row sees; neither may fall from one row to the next
//   queries, dim                      counts; dim <= D
//   vectors                           whether all rows begin at multiples of 16 bytes
//   scale_log2                        scale * log2(e), positive

#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "tensor_core.cuh"

namespace flash {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTiles = 2;  // of 16 queries, for each warp
constexpr int kQueries = 16 * kTiles * kWarps, kKeys = 64;
constexpr int kPad = 8;
constexpr float kLog2E = 1.44269504f;

// Two elements as one register, `low` at the lower address.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

// Rows [first, first + Count) into a tile of D columns; zeros from row `limit` and column `dim` on.
template <int D, int Count, typename T, typename Row>
__device__ __forceinline__ void load_tile(T* tile, int first, int limit, int dim, bool vectors, Row row) {
  if (vectors) {
    constexpr int kChunks = D / 8;
#pragma unroll
    for (int i = threadIdx.x; i < Count * kChunks; i += kThreads) {
      const int r = i / kChunks, c = i % kChunks * 8;
      const bool valid = first + r < limit && c < dim;
      copy_async(tile + r * (D + kPad) + c, valid ? row(first + r) + c : row(first), valid);
    }
  } else {
    for (int i = threadIdx.x; i < Count * D; i += kThreads) {
      const int r = i / D, c = i % D;
      const bool valid = first + r < limit && c < dim;
      tile[r * (D + kPad) + c] = valid ? row(first + r)[c] : T(0.0f);
    }
  }
}

// Rows of one warp's tile into `out`; as load_tile.
template <int D, int Count, typename T, typename Row>
__device__ __forceinline__ void store_tile(const T* tile, int first, int limit, int dim, bool vectors, Row row) {
  constexpr int kChunks = D / 8;
  for (int i = threadIdx.x % 32; i < Count * kChunks; i += 32) {
    const int r = i / kChunks, c = i % kChunks * 8;
    if (first + r >= limit || c >= dim) continue;
    const T* from = tile + r * (D + kPad) + c;
    T* to = row(first + r) + c;
    if (vectors) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int j = 0; j < 8 && c + j < dim; ++j) to[j] = from[j];
    }
  }
}

template <typename T, int D>
constexpr int shared_bytes() { return (kQueries + 2 * kKeys) * (D + kPad) * static_cast<int>(sizeof(T)); }

// A block makes kQueries rows of one head; the last rows, which see most keys where there is a mask, start first.
template <typename T, int D, typename Problem>
__global__ void __launch_bounds__(kThreads, 2) attend(const Problem problem, int tiles) {
  constexpr int kStride = D + kPad;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const q_tile = reinterpret_cast<T*>(shared);
  T* const k_tile = q_tile + kQueries * kStride;
  T* const v_tile = k_tile + kKeys * kStride;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto head = problem.head(blockIdx.x / tiles);
  const int first_row = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kQueries;
  const int last_row = min(first_row + kQueries, head.queries) - 1;
  const int own_row = warp * 16 * kTiles;  // of the tile
  const int end = head.end(last_row);
  // Blocks of keys in [common_begin, common_end) are seen by every row.
  const int common_begin = head.begin(last_row), common_end = head.end(first_row);
  const auto load_keys = [&](int key) {
    load_tile<D, kKeys>(k_tile, key, end, head.dim, head.vectors, [&](int j) { return head.k(j); });
    commit_copies();
  };

  float o[kTiles][D / 8][4] = {}, max[kTiles][2], sum[kTiles][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    max[m][0] = max[m][1] = -INFINITY;
    sum[m][0] = sum[m][1] = 0.0f;
  }

  int key = head.begin(first_row) / kKeys * kKeys;
  load_tile<D, kQueries>(q_tile, first_row, head.queries, head.dim, head.vectors, [&](int i) { return head.q(i); });
  load_keys(key);

  for (; key < end; key += kKeys) {
    wait_for_copies<0>();
    __syncthreads();  // keys have landed, and every warp is done with the last values
    load_tile<D, kKeys>(v_tile, key, end, head.dim, head.vectors, [&](int j) { return head.v(j); });
    commit_copies();

    float s[kTiles][kKeys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < D; k += 16) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        load_matrices(a[m], q_tile + (own_row + m * 16 + lane % 16) * kStride + k + lane / 16 * 8);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t b[4];
        load_matrices(b, k_tile + (n * 16 + lane / 16 * 8 + lane % 8) * kStride + k + lane / 8 % 2 * 8);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_add(s[m][2 * n], a[m], b[0], b[1], T{});
          multiply_add(s[m][2 * n + 1], a[m], b[2], b[3], T{});
        }
      }
    }
    wait_for_copies<0>();
    __syncthreads();  // values have landed, and every warp is done with the keys
    if (key + kKeys < end) load_keys(key + kKeys);

    if (key < common_begin || key + kKeys > common_end) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = first_row + own_row + m * 16 + half * 8 + lane / 4;
          const int row_begin = head.begin(row), row_end = head.end(row);
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int j = key + n * 8 + lane % 4 * 2 + e;
              if (j < row_begin || j >= row_end) s[m][n][half * 2 + e] = -INFINITY;
            }
          }
        }
      }
    }

    // Four neighbouring lanes share a row. Probabilities replace the scores.
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float highest = max[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          highest = fmaxf(highest, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
        // A row that has seen no key yet has no maximum: infinity minus infinity is no number.
        const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, head.scale_log2);
        // Exactly 1 where the maximum stays: a product that is fused with the subtraction would not be.
        const float fade = power_of_two(__fmul_rn(max[m][half], head.scale_log2) - shift);
        max[m][half] = highest;
        sum[m][half] *= fade;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& value = s[m][n][half * 2 + e];
            value = power_of_two(value * head.scale_log2 - shift);
            sum[m][half] += value;
          }
        }
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          o[m][n][half * 2] *= fade;
          o[m][n][half * 2 + 1] *= fade;
        }
      }
    }

#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const auto &left = s[m][2 * k], &right = s[m][2 * k + 1];
        a[m][0] = pack<T>(left[0], left[1]);
        a[m][1] = pack<T>(left[2], left[3]);
        a[m][2] = pack<T>(right[0], right[1]);
        a[m][3] = pack<T>(right[2], right[3]);
      }
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        load_matrices_transposed(b, v_tile + (k * 16 + lane % 16) * kStride + n * 16 + lane / 16 * 8);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_add(o[m][2 * n], a[m], b[0], b[1], T{});
          multiply_add(o[m][2 * n + 1], a[m], b[2], b[3], T{});
        }
      }
    }
  }

  // Outputs leave through the rows of q_tile that this warp alone has read, so that stores are whole vectors.
  T* const own_tile = q_tile + own_row * kStride;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[m][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float inverse = 1.0f / total;
      T* const row = own_tile + (m * 16 + half * 8 + lane / 4) * kStride + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        *reinterpret_cast<uint32_t*>(row + n * 8) =
            pack<T>(o[m][n][half * 2] * inverse, o[m][n][half * 2 + 1] * inverse);
      }
    }
  }
  __syncwarp();
  store_tile<D, 16 * kTiles>(own_tile, first_row + own_row, head.queries, head.dim, head.vectors,
                             [&](int i) { return head.out(i); });
}

template <typename T, int D, typename Problem>
cudaError_t launch_wide(const Problem& problem, int64_t heads, int64_t queries, cudaStream_t stream) {
  const int tiles = static_cast<int>((queries + kQueries - 1) / kQueries);
  constexpr int kBytes = shared_bytes<T, D>();
  const auto kernel = attend<T, D, Problem>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(heads * tiles), kThreads, kBytes, stream>>>(problem, tiles);
  return cudaGetLastError();
}

// dim is at most 128; columns are padded with zeros to 64, 96 or 128.
template <typename T, typename Problem>
cudaError_t launch(const Problem& problem, int64_t heads, int64_t queries, int64_t dim, cudaStream_t stream) {
  if (dim <= 64) return launch_wide<T, 64>(problem, heads, queries, stream);
  if (dim <= 96) return launch_wide<T, 96>(problem, heads, queries, stream);
  return launch_wide<T, 128>(problem, heads, queries, stream);
}

}  // namespace flash
