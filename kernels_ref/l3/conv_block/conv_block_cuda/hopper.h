#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct Shape {
  int64_t batch, in_channels, out_channels, height, width;
  int64_t padded;  // input channels, rounded up to a multiple of 8
  __host__ __device__ int64_t image() const { return height * width; }
  __host__ __device__ int64_t pixels() const { return batch * image(); }
};

// out (batch, out_channels, height, width) of x (batch, height, width, padded) and weight (out_channels, 9, padded),
// which are aligned to 16 bytes, bias (out_channels) and residual (like out), by wgmma on the current device, which has
// to be of capability 9.0. bfloat16 if `bfloat16`, else float16. False: nothing was started, because half of the
// products would be of no pixel, offsets do not fit, or the driver refused to describe the operands.
bool conv_block_by_warp_groups(void* out, const void* x, const void* weight, const void* bias, const void* residual,
                               const Shape& s, bool bfloat16, cudaStream_t stream);
