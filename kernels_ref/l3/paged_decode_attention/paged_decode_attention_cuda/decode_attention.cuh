// Attention of one query per sequence to a cache of keys and values: float16 and bfloat16.
//
// Bound by reading the cache, so all that matters is many bytes in flight, each read once. The query heads of a group
// share their keys: they are the rows of one tensor core tile (16, padded with zeros), which makes arithmetic free.
// A block takes a part of one sequence's keys. Its warps work alone, without a barrier: each loads 16 keys and values
// at a time into buffers of its own, two steps ahead, and keeps its own maximum, sum and output. They are merged once
// at the end; where a sequence is split over blocks, a second kernel merges those.
// Rows in shared memory are padded by 16 bytes, which puts the eight rows of a matrix load into different banks.
//
// Where keys lie is said by a Cache: k and v are base addresses, 16-byte aligned; row(sequence, kv_head, key) is the
// place of a key's first element in both, a multiple of 8.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "tensor_core.cuh"

namespace decode {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16, kKeys = 16;  // of a warp's step
constexpr int kStages = 3;
constexpr int kPad = 8;
constexpr int kStep = kWarps * kKeys;
constexpr float kLog2E = 1.44269504f;

template <typename T>
__device__ __forceinline__ T from_float(float v) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else {
    return __float2bfloat16_rn(v);
  }
}

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

// What one call is about. `partial` holds, for each query head and split, dim sums; `stats` the maximum of the scores
// (times log2(e)) and the sum of the exponentials that go with them.
template <typename T, typename Cache>
struct Call {
  T* out;          // (sequences, kv_heads * group, dim)
  float* partial;  // (sequences, kv_heads * group, splits, dim)
  float* stats;    // (sequences, kv_heads * group, splits, 2)
  const T* q;      // (sequences, kv_heads * group, dim)
  const int32_t* lengths;
  Cache cache;
  int kv_heads, group, dim, splits;
  float scale_log2;
};

template <typename T, int D>
constexpr int shared_bytes() {
  return (kRows + kWarps * kStages * 2 * kKeys) * (D + kPad) * static_cast<int>(sizeof(T));
}

// A block for each split (x), kv head and tile of its query heads (y), and sequence (z).
template <typename T, int D, typename Cache>
__global__ void __launch_bounds__(kThreads, 2) attend(const Call<T, Cache> call) {
  constexpr int kStride = D + kPad, kChunks = D / 8, kTile = kKeys * kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  T* const q_tile = reinterpret_cast<T*>(shared);
  T* const k_tiles = q_tile + kRows * kStride + warp * kStages * 2 * kTile;  // this warp's
  T* const v_tiles = k_tiles + kStages * kTile;

  const int sequence = blockIdx.z, kv_head = blockIdx.y % call.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) / call.kv_heads * kRows;  // of the group
  const int rows = min(kRows, call.group - first_head);
  const int64_t first_row = (static_cast<int64_t>(sequence) * call.kv_heads + kv_head) * call.group + first_head;
  const int length = call.lengths[sequence];
  const int share = (length + call.splits * kStep - 1) / (call.splits * kStep) * kStep;
  const int begin = static_cast<int>(blockIdx.x) * share, end = min(begin + share, length);
  const int steps = end > begin ? (end - begin + kStep - 1) / kStep : 0;

  // Lane r and lane r + 16 know where key r of the step lies; all lanes copy, two rows at a time.
  const auto load_step = [&](int step) {
    if (step < steps) {
      const int first_key = begin + step * kStep + warp * kKeys;
      const int key = first_key + lane % kKeys;
      const int64_t place = key < end ? call.cache.row(sequence, kv_head, key) : 0;
      T *const k_tile = k_tiles + step % kStages * kTile, *const v_tile = v_tiles + step % kStages * kTile;
#pragma unroll
      for (int i = lane; i < kKeys * kChunks; i += 32) {
        const int r = i / kChunks, c = i % kChunks * 8;
        const int64_t from = __shfl_sync(0xffffffffu, place, r) + c;
        const bool valid = first_key + r < end && c < call.dim;
        copy_async(k_tile + r * kStride + c, call.cache.k + (valid ? from : 0), valid);
        copy_async(v_tile + r * kStride + c, call.cache.v + (valid ? from : 0), valid);
      }
    }
    commit_copies();  // also without copies: groups are counted
  };

  for (int i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
    const int r = i / kChunks, c = i % kChunks * 8;
    const bool valid = r < rows && c < call.dim;
    copy_async(q_tile + r * kStride + c, call.q + (valid ? (first_row + r) * call.dim + c : 0), valid);
  }
  commit_copies();
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load_step(step);
  wait_for_copies<kStages - 1>();
  __syncthreads();  // queries have landed
  uint32_t q[D / 16][4];
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    load_matrices(q[k], q_tile + lane % 16 * kStride + k * 16 + lane / 16 * 8);
  }

  float o[D / 8][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncwarp();  // this step has landed for all lanes, and all are done with the step before
    load_step(step + kStages - 1);
    const T *const k_tile = k_tiles + step % kStages * kTile, *const v_tile = v_tiles + step % kStages * kTile;
    const int first_key = begin + step * kStep + warp * kKeys;
    if (first_key >= end) break;  // the last step of a part may have no keys for the last warps

    float s[2][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      uint32_t b[4];
      load_matrices(b, k_tile + (lane / 16 * 8 + lane % 8) * kStride + k * 16 + lane / 8 % 2 * 8);
      multiply_add(s[0], q[k], b[0], b[1], T{});
      multiply_add(s[1], q[k], b[2], b[3], T{});
    }
    if (first_key + kKeys > end) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (first_key + n * 8 + lane % 4 * 2 + e % 2 >= end) s[n][e] = -INFINITY;
        }
      }
    }
    // Every row has a key here, so the maximum is finite. Four neighbouring lanes share a row.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& a = s[0][half * 2];
      float& b = s[0][half * 2 + 1];
      float& c = s[1][half * 2];
      float& d = s[1][half * 2 + 1];
      float highest = fmaxf(fmaxf(max[half], fmaxf(a, b)), fmaxf(c, d));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
      const float shift = highest * call.scale_log2;
      const float fade = power_of_two((max[half] - highest) * call.scale_log2);  // exactly 1 where the maximum stays
      max[half] = highest;
      a = power_of_two(a * call.scale_log2 - shift);
      b = power_of_two(b * call.scale_log2 - shift);
      c = power_of_two(c * call.scale_log2 - shift);
      d = power_of_two(d * call.scale_log2 - shift);
      sum[half] = sum[half] * fade + ((a + b) + (c + d));
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        o[n][half * 2] *= fade;
        o[n][half * 2 + 1] *= fade;
      }
    }
    const uint32_t p[4] = {pack<T>(s[0][0], s[0][1]), pack<T>(s[0][2], s[0][3]), pack<T>(s[1][0], s[1][1]),
                           pack<T>(s[1][2], s[1][3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, v_tile + lane % 16 * kStride + n * 16 + lane / 16 * 8);
      multiply_add(o[2 * n], p, b[0], b[1], T{});
      multiply_add(o[2 * n + 1], p, b[2], b[3], T{});
    }
  }

  // The buffers of all warps become (kWarps, kRows, D + kPad) sums, then maxima and sums of exponentials.
  wait_for_copies<0>();
  __syncthreads();
  float* const sums = reinterpret_cast<float*>(q_tile + kRows * kStride);
  float* const maxima = sums + kWarps * kRows * kStride;  // (kWarps, kRows)
  float* const totals = maxima + kWarps * kRows;          // (kWarps, kRows)
  static_assert(kWarps * kRows * (kStride + 2) * sizeof(float) <= kWarps * kStages * 2 * kTile * sizeof(T));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = warp * kRows + half * 8 + lane / 4;
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    if (lane % 4 == 0) {
      maxima[r] = max[half] * call.scale_log2;
      totals[r] = sum[half];
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      float* const to = sums + r * kStride + n * 8 + lane % 4 * 2;
      to[0] = o[n][half * 2];
      to[1] = o[n][half * 2 + 1];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * call.dim; i += kThreads) {
    const int r = i / call.dim, c = i % call.dim;
    float highest = maxima[r];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) highest = fmaxf(highest, maxima[w * kRows + r]);
    // A part without keys has no maximum, and infinity minus infinity is no number.
    const float shift = highest == -INFINITY ? 0.0f : highest;
    float value = 0.0f, total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = power_of_two(maxima[w * kRows + r] - shift);
      value += weight * sums[(w * kRows + r) * kStride + c];
      total += weight * totals[w * kRows + r];
    }
    const int64_t row = first_row + r;
    if (call.splits == 1) {
      call.out[row * call.dim + c] = from_float<T>(total == 0.0f ? 0.0f : value / total);  // no keys: zeros
      continue;
    }
    const int64_t part = row * call.splits + blockIdx.x;
    call.partial[part * call.dim + c] = value;
    if (c == 0) {
      call.stats[part * 2] = highest;
      call.stats[part * 2 + 1] = total;
    }
  }
}

// Merges the splits of one query head: a block for each, a thread for each of its columns.
template <typename T, typename Cache>
__global__ void __launch_bounds__(128) combine(const Call<T, Cache> call) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * call.splits;
  const int c = threadIdx.x;
  if (c >= call.dim) return;
  float highest = -INFINITY;
  for (int i = 0; i < call.splits; ++i) highest = fmaxf(highest, call.stats[(first + i) * 2]);
  const float shift = highest == -INFINITY ? 0.0f : highest;
  float value = 0.0f, total = 0.0f;
#pragma unroll 4
  for (int i = 0; i < call.splits; ++i) {
    const float weight = power_of_two(call.stats[(first + i) * 2] - shift);
    value += weight * call.partial[(first + i) * call.dim + c];
    total += weight * call.stats[(first + i) * 2 + 1];
  }
  call.out[blockIdx.x * static_cast<int64_t>(call.dim) + c] = from_float<T>(total == 0.0f ? 0.0f : value / total);
}

inline int row_tiles(int64_t group) { return static_cast<int>((group + kRows - 1) / kRows); }

// How many blocks share a sequence: enough that every multiprocessor has four blocks to run, one for each 256 keys
// at most. The lengths themselves are known to the device alone.
inline int choose_splits(int64_t sequences, int64_t kv_heads, int64_t group, int64_t max_length, int device) {
  int processors = 0;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) processors = 132;
  const int64_t work = sequences * kv_heads * row_tiles(group);
  const int64_t wanted = (4 * processors + work - 1) / work, most = (max_length + 255) / 256;
  const int64_t splits = wanted < most ? wanted : most;
  return static_cast<int>(splits < 64 ? splits : 64);
}

template <typename T, int D, typename Cache>
cudaError_t launch_wide(const Call<T, Cache>& call, int64_t sequences, cudaStream_t stream) {
  constexpr int kBytes = shared_bytes<T, D>();
  const auto kernel = attend<T, D, Cache>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(call.splits, call.kv_heads * row_tiles(call.group), static_cast<unsigned>(sequences));
  kernel<<<grid, kThreads, kBytes, stream>>>(call);
  if (call.splits > 1) {
    const unsigned heads = static_cast<unsigned>(sequences * call.kv_heads * call.group);
    const auto merge = combine<T, Cache>;
    merge<<<heads, 128, 0, stream>>>(call);
  }
  return cudaGetLastError();
}

// dim is at most 128; columns are padded with zeros to 64 or 128.
template <typename T, typename Cache>
cudaError_t launch(const Call<T, Cache>& call, int64_t sequences, cudaStream_t stream) {
  return call.dim <= 64 ? launch_wide<T, 64>(call, sequences, stream) : launch_wide<T, 128>(call, sequences, stream);
}

}  // namespace decode
