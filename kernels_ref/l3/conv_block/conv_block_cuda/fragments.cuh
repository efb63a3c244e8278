// Sums in tensor core fragments, on their way to 16 bytes of a row.
//
// wgmma leaves strips of 8 neighbouring columns, of which lane 4 * g + q holds columns 2q and 2q + 1 of row g. Stored
// as they lie, that is 4 bytes from a lane; after an exchange among the 4 lanes of a row it is 16.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

namespace fragments {

// Two neighbouring elements, the first in the low half.
__device__ __forceinline__ uint32_t pair_of(__half, float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  uint32_t word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}
__device__ __forceinline__ uint32_t pair_of(__nv_bfloat16, float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  uint32_t word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

__device__ __forceinline__ float2 floats_of(__half, uint32_t word) {
  __half2 pair;
  memcpy(&pair, &word, sizeof(pair));
  return __half22float2(pair);
}
__device__ __forceinline__ float2 floats_of(__nv_bfloat16, uint32_t word) {
  __nv_bfloat162 pair;
  memcpy(&pair, &word, sizeof(pair));
  return __bfloat1622float2(pair);
}

// Before: words[j] of lane q is pair q of strip j. After: words[p] of lane q is pair p of strip q; and back, if called
// again. All 32 lanes call.
__device__ __forceinline__ void transpose_quad(uint32_t (&words)[4]) {
  constexpr uint32_t kAll = 0xffffffffu;
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  // 2 x 2 blocks among neighbours, then the blocks themselves.
  const uint32_t a = __shfl_xor_sync(kAll, odd ? words[0] : words[1], 1);
  const uint32_t b = __shfl_xor_sync(kAll, odd ? words[2] : words[3], 1);
  const uint32_t w0 = odd ? a : words[0], w1 = odd ? words[1] : a;
  const uint32_t w2 = odd ? b : words[2], w3 = odd ? words[3] : b;
  const uint32_t c = __shfl_xor_sync(kAll, upper ? w0 : w2, 2);
  const uint32_t d = __shfl_xor_sync(kAll, upper ? w1 : w3, 2);
  words[0] = upper ? c : w0;
  words[1] = upper ? d : w1;
  words[2] = upper ? w2 : c;
  words[3] = upper ? w3 : d;
}

}  // namespace fragments
