// Group norm and SiLU on CUDA: float16, bfloat16, float32.
//
// Bound by memory. A group is one contiguous piece. Groups of up to 256 KB are read once: a cluster of up to 8 blocks
// keeps the group in registers and adds its sums up through distributed shared memory, first the mean, then the squares
// of the centred values (no cancellation). Larger groups (decoders of images) are cut into chunks of 16 KB: one kernel
// writes mean and squares of every chunk, a second one merges those of its group while its own chunk is on its way;
// it walks backwards, so that what was read last is still in L2.
// Channels that are not whole vectors of 16 bytes take a plain kernel, a block per group.
// SiLU is free here: one exponential and one fast division hide behind the memory.

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
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

// How the tensor is cut. A group is `width` channels of `positions` elements.
struct Shape {
  int64_t count;  // elements of a group
  unsigned groups, width, positions;
  float eps;
};

__device__ __forceinline__ float silu(float v) { return __fdividef(v, 1.0f + __expf(-v)); }

// Sum over the threads of a block, the same in every thread. `partial` holds 32 floats of shared memory; two calls in a
// row need two of them.
__device__ __forceinline__ float block_sum(float v, float* partial) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : 0.0f;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// The same over a cluster: every block tells every other its sum. `ranks` holds 8 floats.
__device__ __forceinline__ float cluster_sum(float v, float* partial, float* ranks) {
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned size = cluster.num_blocks();
  v = block_sum(v, partial);
  if (size == 1) return v;
  if (threadIdx.x < size) *cluster.map_shared_rank(ranks + cluster.block_rank(), threadIdx.x) = v;
  cluster.sync();
  v = 0.0f;
  for (unsigned r = 0; r < size; ++r) v += ranks[r];
  return v;
}

constexpr int kVecs = 4;           // vectors that a thread keeps in registers
constexpr int kMaxThreads = 512;   // of a block in a cluster
constexpr int kChunkThreads = 256; // of a block that has one chunk of a large group

// Loads vectors first, first + blockDim.x, ... below `end`; others are 0.
template <typename Vec>
__device__ __forceinline__ void load_share(Vec (&values)[kVecs], const Vec* x, unsigned first, unsigned end) {
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    const unsigned i = first + k * blockDim.x;
    values[k] = i < end ? x[i] : Vec{};
  }
}
template <typename T, int N>
__device__ __forceinline__ float share_sum(const Pack<T, N> (&values)[kVecs]) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) sum += to_float(values[k].v[n]);
  }
  return sum;
}
template <typename T, int N>
__device__ __forceinline__ float share_squares(const Pack<T, N> (&values)[kVecs], unsigned first, unsigned end,
                                               float mean) {
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    const bool inside = first + k * blockDim.x < end;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float d = inside ? to_float(values[k].v[n]) - mean : 0.0f;
      squares += d * d;
    }
  }
  return squares;
}
// Every vector lies in one channel, whose weight and bias come from L1.
template <typename T, int N>
__device__ __forceinline__ void store_share(Pack<T, N>* out, const Pack<T, N> (&values)[kVecs], const T* weight,
                                            const T* bias, unsigned first, unsigned end, unsigned channel_vectors,
                                            float mean, float scale) {
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
    const unsigned i = first + k * blockDim.x;
    if (i >= end) break;
    const unsigned channel = i / channel_vectors;
    const float factor = scale * to_float(weight[channel]), shift = to_float(bias[channel]);
    Pack<T, N> result;
#pragma unroll
    for (int n = 0; n < N; ++n)
      result.v[n] = from_float<T>(silu((to_float(values[k].v[n]) - mean) * factor + shift));
    out[i] = result;
  }
}

// A cluster per group; each block takes kVecs * blockDim.x vectors.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads, 2) norm_clusters(T* __restrict__ out, const T* __restrict__ x,
                                                                const T* __restrict__ weight,
                                                                const T* __restrict__ bias, Shape shape) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned blocks = cluster.num_blocks();
  if (blocks > 1) cluster.barrier_arrive();  // a block may only be written to once it has started
  const int64_t group = blockIdx.x / blocks;
  const unsigned first = cluster.block_rank() * kVecs * blockDim.x + threadIdx.x;
  const unsigned end = static_cast<unsigned>(shape.count / N);
  const unsigned channel = static_cast<unsigned>(group % shape.groups) * shape.width;
  __shared__ float partial_sum[32], partial_squares[32], rank_sum[8], rank_squares[8];

  Vec values[kVecs];
  load_share(values, reinterpret_cast<const Vec*>(x + group * shape.count), first, end);
  if (blocks > 1) cluster.barrier_wait();
  const float inv_count = 1.0f / static_cast<float>(shape.count);
  const float mean = cluster_sum(share_sum(values), partial_sum, rank_sum) * inv_count;
  const float squares = cluster_sum(share_squares(values, first, end, mean), partial_squares, rank_squares);
  const float scale = 1.0f / sqrtf(squares * inv_count + shape.eps);
  store_share(reinterpret_cast<Vec*>(out + group * shape.count), values, weight + channel, bias + channel, first, end,
              shape.positions / N, mean, scale);
}

// Mean and sum of squares around it of one chunk: kVecs * kChunkThreads vectors, fewer in the last one of a group.
template <typename T>
__global__ void __launch_bounds__(kChunkThreads) chunk_statistics(float2* __restrict__ statistics,
                                                                  const T* __restrict__ x, Shape shape,
                                                                  unsigned chunks) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const int64_t group = blockIdx.x / chunks;
  const unsigned start = blockIdx.x % chunks * (kVecs * kChunkThreads), first = start + threadIdx.x;
  const unsigned end = static_cast<unsigned>(shape.count / N);
  __shared__ float partial_sum[32], partial_squares[32];
  Vec values[kVecs];
  load_share(values, reinterpret_cast<const Vec*>(x + group * shape.count), first, end);
  const unsigned own = min(end - start, static_cast<unsigned>(kVecs * kChunkThreads)) * N;
  const float mean = block_sum(share_sum(values), partial_sum) / static_cast<float>(own);
  const float squares = block_sum(share_squares(values, first, end, mean), partial_squares);
  if (threadIdx.x == 0) statistics[blockIdx.x] = make_float2(mean, squares);
}

template <typename T>
__global__ void __launch_bounds__(kChunkThreads) norm_chunks(T* __restrict__ out, const T* __restrict__ x,
                                                             const T* __restrict__ weight, const T* __restrict__ bias,
                                                             const float2* __restrict__ statistics, Shape shape,
                                                             unsigned chunks) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T, N>;
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const int64_t group = block / chunks;
  const unsigned first = block % chunks * (kVecs * kChunkThreads) + threadIdx.x;
  const unsigned end = static_cast<unsigned>(shape.count / N);
  const unsigned channel = static_cast<unsigned>(group % shape.groups) * shape.width;
  __shared__ float partial_sum[32], partial_squares[32];
  Vec values[kVecs];
  load_share(values, reinterpret_cast<const Vec*>(x + group * shape.count), first, end);

  // All chunks have `full` elements but the last: sum of parts = sum of (own squares + elements * (own mean - mean)^2).
  const float full = kVecs * kChunkThreads * N;
  const float last = static_cast<float>(shape.count - static_cast<int64_t>(chunks - 1) * (kVecs * kChunkThreads * N));
  const float inv_count = 1.0f / static_cast<float>(shape.count);
  const float2* parts = statistics + group * chunks;
  float sum = 0.0f;
  for (unsigned c = threadIdx.x; c < chunks; c += kChunkThreads) sum += parts[c].x * (c + 1 < chunks ? full : last);
  const float mean = block_sum(sum, partial_sum) * inv_count;
  float squares = 0.0f;
  for (unsigned c = threadIdx.x; c < chunks; c += kChunkThreads) {
    const float d = parts[c].x - mean;
    squares += parts[c].y + d * d * (c + 1 < chunks ? full : last);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, partial_squares) * inv_count + shape.eps);
  store_share(reinterpret_cast<Vec*>(out + group * shape.count), values, weight + channel, bias + channel, first, end,
              shape.positions / N, mean, scale);
}

// A block per group, one element at a time.
template <typename T>
__global__ void __launch_bounds__(512) norm_plain(T* __restrict__ out, const T* __restrict__ x,
                                                  const T* __restrict__ weight, const T* __restrict__ bias,
                                                  Shape shape) {
  const int64_t base = blockIdx.x * shape.count;
  const unsigned channel = blockIdx.x % shape.groups * shape.width;
  const unsigned count = static_cast<unsigned>(shape.count);
  __shared__ float partial_sum[32], partial_squares[32];
  const float inv_count = 1.0f / static_cast<float>(shape.count);
  float sum = 0.0f;
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) sum += to_float(x[base + i]);
  const float mean = block_sum(sum, partial_sum) * inv_count;
  float squares = 0.0f;
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
    const float d = to_float(x[base + i]) - mean;
    squares += d * d;
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, partial_squares) * inv_count + shape.eps);
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
    const unsigned c = channel + i / shape.positions;
    const float v = (to_float(x[base + i]) - mean) * scale * to_float(weight[c]) + to_float(bias[c]);
    out[base + i] = from_float<T>(silu(v));
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(const torch::stable::Tensor& workspace_like, T* out, const T* x, const T* weight, const T* bias,
            int64_t all_groups, const Shape& shape, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  if (shape.positions % N != 0 || !aligned(out) || !aligned(x)) {
    const unsigned threads = shape.count >= 512 ? 512 : whole_warps(shape.count);
    norm_plain<T><<<static_cast<unsigned>(all_groups), threads, 0, stream>>>(out, x, weight, bias, shape);
    return;
  }
  const int64_t vectors = shape.count / N;
  if (vectors <= 8 * kMaxThreads * kVecs) {
    // Blocks of at most 256 threads while 8 of them are enough: the smaller they are, the more overlap.
    unsigned blocks = 1;
    while (blocks < 8 && vectors > blocks * 256 * kVecs) blocks *= 2;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(all_groups) * blocks);
    config.blockDim = dim3(whole_warps((vectors + blocks * kVecs - 1) / (blocks * kVecs)));
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, norm_clusters<T>, out, x, weight, bias, shape);
    STD_TORCH_CHECK(error == cudaSuccess, "group_norm_silu: ", cudaGetErrorString(error));
    return;
  }
  const auto chunks = static_cast<unsigned>((vectors + kVecs * kChunkThreads - 1) / (kVecs * kChunkThreads));
  const int64_t all_chunks = all_groups * chunks;
  STD_TORCH_CHECK(all_chunks <= INT32_MAX, "group_norm_silu: tensor too large");
  using torch::headeronly::ScalarType;
  const auto workspace = torch::stable::new_empty(workspace_like, {2 * all_chunks}, ScalarType::Float);
  auto* statistics = static_cast<float2*>(workspace.mutable_data_ptr());
  const auto grid = static_cast<unsigned>(all_chunks);
  chunk_statistics<T><<<grid, kChunkThreads, 0, stream>>>(statistics, x, shape, chunks);
  norm_chunks<T><<<grid, kChunkThreads, 0, stream>>>(out, x, weight, bias, statistics, shape, chunks);
}

}  // namespace

void group_norm_silu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& weight, const torch::stable::Tensor& bias, double eps,
                     int64_t groups) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && weight.dim() == 1 && bias.dim() == 1,
                  "group_norm_silu: expected (n, channels, positions) and (channels,)");
  const int64_t n = x.size(0), channels = x.size(1), positions = x.size(2);
  STD_TORCH_CHECK(out.size(0) == n && out.size(1) == channels && out.size(2) == positions &&
                      weight.size(0) == channels && bias.size(0) == channels,
                  "group_norm_silu: shapes differ");
  STD_TORCH_CHECK(groups > 0 && channels % groups == 0, "group_norm_silu: groups must divide channels");
  STD_TORCH_CHECK(n * groups * 8 <= INT32_MAX && channels / groups * positions <= INT32_MAX,
                  "group_norm_silu: tensor too large");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "group_norm_silu: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "group_norm_silu: expected contiguous tensors on one CUDA device");
  }
  if (n == 0 || channels == 0 || positions == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "group_norm_silu: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const int64_t width = channels / groups;
  const Shape shape{width * positions, static_cast<unsigned>(groups), static_cast<unsigned>(width),
                    static_cast<unsigned>(positions), static_cast<float>(eps)};
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(x, static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(weight.const_data_ptr()), static_cast<const T*>(bias.const_data_ptr()), n * groups,
           shape, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "group_norm_silu: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "group_norm_silu: ", cudaGetErrorString(error));
}
