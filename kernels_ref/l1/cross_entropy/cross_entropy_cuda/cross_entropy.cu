// Cross-entropy and log-sum-exp of every token on CUDA: float16, bfloat16, float32.
//
// Logits are read once, in vectors of 16 bytes, four of them in flight per thread; maximum and sum go together (the sum
// is rescaled when the maximum grows). A token has a block; where that leaves the GPU idle it has a cluster of up to 8
// blocks, which exchange their partial results through distributed shared memory; short rows have a warp each. Rows
// that do not begin at a multiple of 16 bytes use the same vectors, only the first and the last are taken apart.

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>
#include <cstring>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

namespace cg = cooperative_groups;

// N elements moved as one access of N * sizeof(T) bytes.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) { return v; }
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

// Of any part of a row: its maximum and the sum of exp(v - max). {-FLT_MAX, 0} is of no elements.
struct Partial {
  float max, sum;
};
__device__ __forceinline__ Partial merge(Partial a, Partial b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max)};
}
__device__ __forceinline__ Partial merge_warp(Partial p) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    p = merge(p, {__shfl_xor_sync(0xffffffffu, p.max, offset), __shfl_xor_sync(0xffffffffu, p.sum, offset)});
  // Lanes have merged in different orders and may differ in the last bit: lane 0 speaks for all.
  return {__shfl_sync(0xffffffffu, p.max, 0), __shfl_sync(0xffffffffu, p.sum, 0)};
}

// Over the threads of one row: a warp when blockDim.x is 32, else the whole block (blockDim.y is 1 then), and then the
// gridDim.y blocks of its cluster. To be called once in a kernel.
__device__ __forceinline__ Partial reduce_row(Partial p) {
  p = merge_warp(p);
  if (blockDim.x > 32) {
    __shared__ Partial of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0) of_warp[warp] = p;
    __syncthreads();
    p = merge_warp(lane < warps ? of_warp[lane] : Partial{-FLT_MAX, 0.0f});
  }
  if (gridDim.y > 1) {
    __shared__ Partial of_block;
    const cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) of_block = p;
    cluster.sync();
    p = {-FLT_MAX, 0.0f};
    for (unsigned rank = 0; rank < gridDim.y; ++rank) p = merge(p, *cluster.map_shared_rank(&of_block, rank));
    cluster.sync();  // no block may end while another one reads its shared memory
  }
  return p;
}

template <typename T, int N>
__device__ __forceinline__ float largest(const Pack<T, N>& v) {
  float max = to_float(v.v[0]);
#pragma unroll
  for (int n = 1; n < N; ++n) max = fmaxf(max, to_float(v.v[n]));
  return max;
}

// Elements j .. j + N - 1 of a row of `cols`; those outside of it are -infinity. row + j is aligned to a whole vector.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_edge(const T* row, int j, int cols) {
  Pack<T, N> v;
  if constexpr (sizeof(v) == sizeof(uint4)) {
    // Both ways end in the same four words, and only then are they taken apart: 16-bit elements would be taken apart
    // in the branch, and every load waited for before the next one starts.
    uint4 bits;
    if (j >= 0 && j + N <= cols) {
      bits = *reinterpret_cast<const uint4*>(row + j);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(-INFINITY);
      memcpy(&bits, &v, sizeof(bits));
    }
    asm("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    memcpy(&v, &bits, sizeof(v));
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(-INFINITY);
  }
  return v;
}

// gridDim.y blocks (one cluster) make a row, or each warp of a block one when blockDim.x is 32. N is 1 where the
// logits are not aligned to 16 bytes. Vectors are counted from the boundary at or before the row's first element.
template <typename T, int N>
__global__ void __launch_bounds__(512) loss_rows(float* __restrict__ loss, float* __restrict__ lse,
                                                 const T* __restrict__ logits, const int64_t* __restrict__ target,
                                                 int64_t tokens, int vocab, int64_t ignore_index) {
  constexpr int VECS = 4;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= tokens) return;  // whole warps only: blockDim.y > 1 means a warp per row
  const T* x = logits + row * vocab;
  const int shift = static_cast<int>(row * vocab % N);
  const int step = static_cast<int>(gridDim.y * blockDim.x) * N;
  Partial part{-FLT_MAX, 0.0f};
  for (int j = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * N - shift; j < vocab; j += VECS * step) {
    Pack<T, N> v[VECS];
#pragma unroll
    for (int k = 0; k < VECS; ++k) v[k] = load_edge<T, N>(x, j + k * step, vocab);
    float max = part.max;
#pragma unroll
    for (int k = 0; k < VECS; ++k) max = fmaxf(max, largest(v[k]));
    part.sum *= __expf(part.max - max);
    part.max = max;
#pragma unroll
    for (int k = 0; k < VECS; ++k) {
#pragma unroll
      for (int n = 0; n < N; ++n) part.sum += __expf(to_float(v[k].v[n]) - max);  // 0 outside the row
    }
  }
  part = reduce_row(part);
  if (threadIdx.x == 0 && blockIdx.y == 0) {
    const float log_sum = logf(part.sum);
    const int64_t t = target[row];
    lse[row] = part.max + log_sum;
    loss[row] = t == ignore_index ? 0.0f : log_sum + (part.max - to_float(x[t]));
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T, int N>
void launch(float* loss, float* lse, const T* logits, const int64_t* target, int64_t tokens, int vocab,
            int64_t ignore_index, cudaStream_t stream) {
  const int vectors = (vocab + 2 * N - 2) / N;  // a row that begins inside a vector has one more
  const bool warp_per_row = vectors <= 128;
  // 264 blocks of 512 threads fill half of an H100; a part keeps at least one round of 4 vectors a thread.
  int64_t parts = 1;
  while (parts < 8 && tokens * parts < 264 && vectors >= parts * 2 * 2048) parts *= 2;
  const auto blocks = static_cast<unsigned>(tokens);
  cudaLaunchConfig_t config{};
  config.blockDim = warp_per_row ? dim3(32, 8) : dim3(vectors >= 2048 ? 512 : whole_warps((vectors + 3) / 4));
  config.gridDim = dim3(warp_per_row ? (blocks + 7) / 8 : blocks, static_cast<unsigned>(parts));
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, static_cast<unsigned>(parts), 1};
  config.attrs = &cluster;
  config.numAttrs = parts > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, loss_rows<T, N>, loss, lse, logits, target, tokens, vocab,
                     ignore_index);  // its error is read by the caller
}

}  // namespace

void cross_entropy(const torch::stable::Tensor& loss, const torch::stable::Tensor& lse,
                   const torch::stable::Tensor& logits, const torch::stable::Tensor& target, int64_t ignore_index) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(logits.dim() == 2 && loss.dim() == 1 && lse.dim() == 1 && target.dim() == 1,
                  "cross_entropy: expected logits (tokens, vocab), all others (tokens,)");
  const int64_t tokens = logits.size(0), vocab = logits.size(1);
  STD_TORCH_CHECK(loss.size(0) == tokens && lse.size(0) == tokens && target.size(0) == tokens,
                  "cross_entropy: shapes differ");
  STD_TORCH_CHECK(loss.scalar_type() == ScalarType::Float && lse.scalar_type() == ScalarType::Float &&
                      target.scalar_type() == ScalarType::Long,
                  "cross_entropy: expected float32 loss and lse, int64 target");
  STD_TORCH_CHECK(tokens <= INT32_MAX && vocab <= (1 << 30), "cross_entropy: tensor too large");
  for (const auto* t : {&loss, &lse, &logits, &target})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == logits.get_device_index(),
                    "cross_entropy: expected contiguous tensors on one CUDA device");
  if (tokens == 0 || vocab == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(logits.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(logits.get_device_index(), &raw_stream) == 0,
                  "cross_entropy: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const auto* x = static_cast<const T*>(logits.const_data_ptr());
    const auto start = aligned(x) ? launch<T, 16 / sizeof(T)> : launch<T, 1>;
    start(static_cast<float*>(loss.mutable_data_ptr()), static_cast<float*>(lse.mutable_data_ptr()), x,
          static_cast<const int64_t*>(target.const_data_ptr()), tokens, static_cast<int>(vocab), ignore_index, stream);
  };
  switch (logits.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "cross_entropy: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "cross_entropy: ", cudaGetErrorString(error));
}
