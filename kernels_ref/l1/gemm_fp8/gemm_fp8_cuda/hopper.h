#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// out (m, n) bfloat16 = scale_a[i] * scale_b[j] * a (m, k) * b (n, k)^T by wgmma on the current device, which has to be
// of capability 9.0. Needs k to be a multiple of 16, and a and b aligned to 16 bytes; false: nothing was started,
// because the driver refused to describe the operands.
bool gemm_fp8_by_warp_groups(void* out, const void* a, const void* b, const float* scale_a, const float* scale_b,
                             int64_t m, int64_t n, int64_t k, cudaStream_t stream);
