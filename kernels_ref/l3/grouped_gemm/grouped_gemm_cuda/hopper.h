#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct Problem {
  int64_t tokens, experts, n, k;
};

// out (tokens, n) of x (tokens, k) and weights (experts, n, k), all bfloat16, by wgmma on the current device, which has
// to be of capability 9.0. Needs k to be a multiple of 8, and x and weights aligned to 16 bytes; false: nothing was
// started, because there are too many experts or rows, or the driver refused to describe the operands.
bool grouped_gemm_by_warp_groups(void* out, const void* x, const void* weights, const int64_t* offsets,
                                 const Problem& problem, cudaStream_t stream);
