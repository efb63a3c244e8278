#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// By wgmma on the current device, which has to be of capability 9.0; everything bfloat16. Both need k to be a multiple
// of 8, and operands aligned to 16 bytes; false: nothing was started, because the driver refused to describe them.

// out (m, n) = a (m, k) * b (n, k)^T.
bool product_by_warp_groups(void* out, const void* a, const void* b, int64_t m, int64_t n, int64_t k,
                            cudaStream_t stream);
// out (m, n) = silu(a * gate^T) * (a * up^T), a (m, k), gate and up (n, k).
bool gated_by_warp_groups(void* out, const void* a, const void* gate, const void* up, int64_t m, int64_t n, int64_t k,
                          cudaStream_t stream);
