// Kernels with one fault each, and their correct forms: faults.ptx is this file by
// nvcc -ptx -arch=compute_90a -std=c++17 -O2 -lineinfo faults.cu. One block of 128 threads; arrays of 128 elements.
#include <cuda_fp16.h>

#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void copy_async(void* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ void wait_async() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

__device__ void wait_barrier(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(
          shared_address(barrier)),
      "r"(parity)
      : "memory");
}

__device__ void load_bulk(float* to, const float* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

__device__ void store_bulk(float* to, const float* from, uint32_t bytes, bool wait) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  if (wait) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// (64 x 16) x (8 x 16)^T of ones, in core matrices of 8 rows of 16 bytes.
__device__ float multiply(const __half* tiles, bool fence, bool wait) {
  const uint64_t a = (shared_address(tiles) >> 4 & 0x3fff) | 8ull << 16 | 16ull << 32;
  const uint64_t b = (shared_address(tiles + 1024) >> 4 & 0x3fff) | 8ull << 16 | 16ull << 32;
  float d[4] = {};
  if (fence) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(a), "l"(b), "r"(0));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  if (wait) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  return d[0] + d[1] + d[2] + d[3];
}

}  // namespace

enum Fault {
  kCorrectBarrier, kMissingBarrier, kTwoWriters, kOverwrittenEarly, kUninitialized, kOutOfBounds, kMisaligned,
  kOutsideShared, kDeadlock, kSpin, kCorrectAsync, kMissingAsyncWait, kCorrectBulk, kMissingBulkWait, kCorrectStore,
  kMissingFence, kMissingStoreWait, kCorrectWgmma, kMissingWgmmaWait, kMissingWgmmaFence, kPartialShuffle,
  kDivergentBarrier, kTrap, kCorrectNamedBarrier, kNotInMask, kUninitializedBarrier, kArriveTwice,
};

extern "C" __global__ void faulty(int fault, float* out, const float* in, int n) {
  __shared__ alignas(128) float values[128];
  __shared__ alignas(128) __half tiles[1024 + 128];
  __shared__ uint64_t barrier;
  __shared__ volatile int flag;
  const int i = threadIdx.x, other = (i + 32) % 128;
  switch (fault) {
    case kCorrectBarrier:
    case kMissingBarrier:
      values[i] = in[i];
      if (fault == kCorrectBarrier) __syncthreads();
      out[i] = values[other];
      break;
    case kTwoWriters:
      values[i % 64] = in[i];
      __syncthreads();
      out[i] = values[i % 64];
      break;
    case kOverwrittenEarly:
      values[i] = in[i];
      __syncthreads();
      out[i] = values[other];
      values[i] = 0.0f;
      break;
    case kUninitialized:
      if (i) values[i] = in[i];
      __syncthreads();
      out[i] = values[other];
      break;
    case kOutOfBounds: out[i < n - 1 ? i : n] = in[i]; break;
    case kMisaligned: out[i] = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(in) + 4 * i + (i == 5)); break;
    case kOutsideShared: asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared_address(values) + 4 * i + (i == 9) * 65536), "f"(in[i])); break;
    case kDeadlock:
      if (i < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
      break;
    case kSpin:
      flag = 0;
      while (flag == 0) {
      }
      break;
    case kCorrectAsync:
    case kMissingAsyncWait:
      copy_async(values + i, in + i);
      if (fault == kCorrectAsync) wait_async();
      __syncthreads();
      out[i] = values[other];
      break;
    case kUninitializedBarrier:
    case kCorrectBulk:
    case kMissingBulkWait:
      if (i == 0 && fault != kUninitializedBarrier) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
      __syncthreads();
      if (i == 0) load_bulk(values, in, 512, &barrier);
      if (fault == kCorrectBulk) wait_barrier(&barrier, 0);
      out[i] = values[other];
      break;
    case kCorrectStore:
    case kMissingFence:
    case kMissingStoreWait:
      values[i] = in[i];
      if (fault != kMissingFence) fence_proxy();
      __syncthreads();
      if (i == 0) store_bulk(out, values, 512, fault != kMissingStoreWait);
      break;
    case kCorrectWgmma:
    case kMissingWgmmaWait:
    case kMissingWgmmaFence:
      for (int k = i; k < 1024 + 128; k += 128) tiles[k] = __float2half(1.0f);
      fence_proxy();
      __syncthreads();
      if (fault == kCorrectWgmma) out[i] = multiply(tiles, true, true);
      if (fault == kMissingWgmmaWait) out[i] = multiply(tiles, true, false);
      if (fault == kMissingWgmmaFence) out[i] = multiply(tiles, false, true);
      break;
    case kPartialShuffle: {
      float value = in[i];
      if (i % 32 < 16) value = __shfl_xor_sync(0xffffffff, value, 1);
      __syncthreads();
      out[i] = value;
      break;
    }
    case kNotInMask: out[i] = __shfl_xor_sync(0xffff, in[i], 1); break;
    case kDivergentBarrier:
      values[i] = in[i];
      if (i % 32 < 16)
        __syncthreads();
      else
        asm volatile("bar.sync 0;" ::: "memory");
      out[i] = values[other];
      break;
    case kTrap:
      if (i == 77) __trap();
      break;
    case kCorrectNamedBarrier:
      if (i < 64) {
        values[i] = in[i];
        asm volatile("bar.arrive 2, 128;" ::: "memory");
      } else {
        asm volatile("bar.sync 2, 128;" ::: "memory");
        out[i] = values[i - 64];
      }
      break;
    case kArriveTwice:
      if (i == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 4;" ::"r"(shared_address(&barrier)));
        for (int k = 0; k < n; k++) asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.shared::cta.b64 s, [%0];\n}" ::"r"(shared_address(&barrier)));
      }
      break;
  }
}
