#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// out (m, n) = a (m, k) * b (n, k)^T by wgmma on the current device, which has to be of capability 9.0.
// bfloat16 if `bfloat16`, else float16. Needs k to be a multiple of 8, and a and b aligned to 16 bytes; false: nothing
// was started, because the driver refused to describe the operands.
bool gemm_by_warp_groups(void* out, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool bfloat16,
                         cudaStream_t stream);
