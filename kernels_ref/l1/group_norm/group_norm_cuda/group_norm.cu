// Group norm on CUDA: float16, bfloat16, float32.
//
// Bound by memory. A group is one contiguous piece. Groups of up to 1 MB are read once: a cluster of up to 8 blocks
// keeps the group in registers and adds its sums up through distributed shared memory, first the mean, then the squares
// of the centred values (no cancellation). Larger groups (decoders of images) are cut into chunks of 16 KB: one kernel
// writes mean and squares of every chunk, a second one merges those of its group while its own chunk is on its way.
// Both go over 32 MB of groups at a time, the second one backwards and with stores that leave L2 first, so that its
// reads of x come from L2. Groups of many chunks are merged by a kernel of their own.
// Channels that are not whole vectors of 16 bytes take a plain kernel, a block per group.

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Vectors of 16 bytes stay words until they are used: of taken-apart bfloat16 each would hold a register.
template <typename T>
__device__ __forceinline__ void widen(const int4& words, float (&values)[16 / sizeof(T)]) {
  const int parts[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      values[i] = __int_as_float(parts[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      values[2 * i] = __int_as_float(parts[i] << 16);
      values[2 * i + 1] = __int_as_float(parts[i] & 0xffff0000);
    } else {
      __half2 pair;
      memcpy(&pair, &parts[i], sizeof(pair));
      values[2 * i] = __low2float(pair);
      values[2 * i + 1] = __high2float(pair);
    }
  }
}

// Makes the compiler forget what it made of the words: it would keep them as float32 from pass to pass, and spill.
template <int VECS>
__device__ __forceinline__ void keep_packed(int4 (&words)[VECS]) {
#pragma unroll
  for (int k = 0; k < VECS; ++k)
    asm volatile("" : "+r"(words[k].x), "+r"(words[k].y), "+r"(words[k].z), "+r"(words[k].w));
}

// How the tensor is cut. A group is `width` channels of `positions` elements.
struct Shape {
  int64_t count;  // elements of a group
  unsigned groups, width, positions;
  float eps;
};

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

constexpr int kVecs = 4;           // vectors of a chunk that a thread keeps in registers
constexpr int kMaxThreads = 512;   // of a block in a cluster
constexpr int kChunkThreads = 256; // of a block that has one chunk of a large group
constexpr unsigned kMergedChunks = 512;             // of a group with more, a kernel of its own merges the statistics
constexpr int64_t kBatchBytes = int64_t{32} << 20;  // of groups that both passes go over while they are in L2

// Loads vectors first, first + blockDim.x, ... below `end`; others are 0.
template <int VECS>
__device__ __forceinline__ void load_share(int4 (&words)[VECS], const void* x, unsigned first, unsigned end) {
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const unsigned i = first + k * blockDim.x;
    words[k] = i < end ? static_cast<const int4*>(x)[i] : int4{};
  }
}
template <typename T, int VECS>
__device__ __forceinline__ float share_sum(const int4 (&words)[VECS]) {
  constexpr int N = 16 / sizeof(T);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    float v[N];
    widen<T>(words[k], v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum += v[n];
  }
  return sum;
}
template <typename T, int VECS>
__device__ __forceinline__ float share_squares(const int4 (&words)[VECS], unsigned first, unsigned end, float mean) {
  constexpr int N = 16 / sizeof(T);
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    if (first + k * blockDim.x >= end) break;
    float v[N];
    widen<T>(words[k], v);
#pragma unroll
    for (int n = 0; n < N; ++n) squares += (v[n] - mean) * (v[n] - mean);
  }
  return squares;
}
// Every vector lies in one channel, whose weight and bias come from L1. The output is not read again: it leaves L2
// first.
template <typename T, int VECS>
__device__ __forceinline__ void store_share(T* out, const int4 (&words)[VECS], const T* weight, const T* bias,
                                            unsigned first, unsigned end, unsigned channel_vectors, float mean,
                                            float scale) {
  constexpr int N = 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const unsigned i = first + k * blockDim.x;
    if (i >= end) break;
    const unsigned channel = i / channel_vectors;
    const float factor = scale * to_float(weight[channel]), shift = to_float(bias[channel]);
    float v[N];
    widen<T>(words[k], v);
    Pack<T, N> result;
#pragma unroll
    for (int n = 0; n < N; ++n) result.v[n] = from_float<T>((v[n] - mean) * factor + shift);
    int4 bits;
    memcpy(&bits, &result, sizeof(bits));
    __stcs(reinterpret_cast<int4*>(out) + i, bits);
  }
}

// A cluster per group; each block takes VECS * blockDim.x vectors.
template <typename T, int VECS>
__global__ void __launch_bounds__(kMaxThreads, VECS > 8 ? 1 : 2)
    norm_clusters(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight,
                  const T* __restrict__ bias, Shape shape) {
  constexpr int N = 16 / sizeof(T);
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned blocks = cluster.num_blocks();
  if (blocks > 1) cluster.barrier_arrive();  // a block may only be written to once it has started
  const int64_t group = blockIdx.x / blocks;
  const unsigned first = cluster.block_rank() * VECS * blockDim.x + threadIdx.x;
  const unsigned end = static_cast<unsigned>(shape.count / N);
  const unsigned channel = static_cast<unsigned>(group % shape.groups) * shape.width;
  __shared__ float partial_sum[32], partial_squares[32], rank_sum[8], rank_squares[8];

  int4 values[VECS];
  load_share(values, x + group * shape.count, first, end);
  if (blocks > 1) cluster.barrier_wait();
  const float inv_count = 1.0f / static_cast<float>(shape.count);
  const float mean = cluster_sum(share_sum<T>(values), partial_sum, rank_sum) * inv_count;
  keep_packed(values);
  const float squares = cluster_sum(share_squares<T>(values, first, end, mean), partial_squares, rank_squares);
  keep_packed(values);
  const float scale = 1.0f / sqrtf(squares * inv_count + shape.eps);
  store_share(out + group * shape.count, values, weight + channel, bias + channel, first, end,
              shape.positions / N, mean, scale);
}

// Mean and sum of squares around it of one chunk: kVecs * kChunkThreads vectors, fewer in the last one of a group.
template <typename T>
__global__ void __launch_bounds__(kChunkThreads) chunk_statistics(float2* __restrict__ statistics,
                                                                  const T* __restrict__ x, Shape shape,
                                                                  unsigned chunks) {
  constexpr int N = 16 / sizeof(T);
  const int64_t group = blockIdx.x / chunks;
  const unsigned start = blockIdx.x % chunks * (kVecs * kChunkThreads), first = start + threadIdx.x;
  const unsigned end = static_cast<unsigned>(shape.count / N);
  __shared__ float partial_sum[32], partial_squares[32];
  int4 values[kVecs];
  load_share(values, x + group * shape.count, first, end);
  const unsigned own = min(end - start, static_cast<unsigned>(kVecs * kChunkThreads)) * N;
  const float mean = block_sum(share_sum<T>(values), partial_sum) / static_cast<float>(own);
  const float squares = block_sum(share_squares<T>(values, first, end, mean), partial_squares);
  if (threadIdx.x == 0) statistics[blockIdx.x] = make_float2(mean, squares);
}

// Mean and scale of a group from the statistics of its chunks, the same in every thread of the block. All chunks have
// `full` elements but the last: sum of parts = sum of (own squares + elements * (own mean - mean)^2).
template <int N>
__device__ __forceinline__ float2 merge(const float2* parts, unsigned chunks, const Shape& shape) {
  constexpr int kFull = kVecs * kChunkThreads * N;
  __shared__ float partial_sum[32], partial_squares[32];
  const float full = kFull, last = static_cast<float>(shape.count - static_cast<int64_t>(chunks - 1) * kFull);
  const float inv_count = 1.0f / static_cast<float>(shape.count);
  float sum = 0.0f;
  for (unsigned c = threadIdx.x; c < chunks; c += kChunkThreads) sum += parts[c].x * (c + 1 < chunks ? full : last);
  const float mean = block_sum(sum, partial_sum) * inv_count;
  float squares = 0.0f;
  for (unsigned c = threadIdx.x; c < chunks; c += kChunkThreads) {
    const float d = parts[c].x - mean;
    squares += parts[c].y + d * d * (c + 1 < chunks ? full : last);
  }
  return make_float2(mean, 1.0f / sqrtf(block_sum(squares, partial_squares) * inv_count + shape.eps));
}

// A block per group.
template <int N>
__global__ void __launch_bounds__(kChunkThreads) merge_chunks(float2* __restrict__ merged,
                                                              const float2* __restrict__ statistics, Shape shape,
                                                              unsigned chunks) {
  const float2 found = merge<N>(statistics + static_cast<int64_t>(blockIdx.x) * chunks, chunks, shape);
  if (threadIdx.x == 0) merged[blockIdx.x] = found;
}

// `merged`: mean and scale of every group, or null. The channels of the first group start at `first_group`.
template <typename T>
__global__ void __launch_bounds__(kChunkThreads) norm_chunks(T* __restrict__ out, const T* __restrict__ x,
                                                             const T* __restrict__ weight, const T* __restrict__ bias,
                                                             const float2* __restrict__ statistics,
                                                             const float2* __restrict__ merged, Shape shape,
                                                             unsigned chunks, int64_t first_group) {
  constexpr int N = 16 / sizeof(T);
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const int64_t group = block / chunks;
  const unsigned first = block % chunks * (kVecs * kChunkThreads) + threadIdx.x;
  const unsigned end = static_cast<unsigned>(shape.count / N);
  const unsigned channel = static_cast<unsigned>((first_group + group) % shape.groups) * shape.width;
  int4 values[kVecs];
  load_share(values, x + group * shape.count, first, end);
  const float2 found = merged != nullptr ? merged[group] : merge<N>(statistics + group * chunks, chunks, shape);
  store_share(out + group * shape.count, values, weight + channel, bias + channel, first, end,
              shape.positions / N, found.x, found.y);
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
    out[base + i] = from_float<T>(v);
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int64_t threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

// A cluster of 1 to 8 blocks for each group.
template <typename T, int VECS>
void launch_clusters(T* out, const T* x, const T* weight, const T* bias, int64_t all_groups, const Shape& shape,
                     cudaStream_t stream) {
  const int64_t vectors = shape.count / (16 / sizeof(T));
  // Blocks of at most 256 threads while 8 of them are enough: the smaller they are, the more overlap.
  unsigned blocks = 1;
  while (blocks < 8 && vectors > blocks * 256 * VECS) blocks *= 2;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(all_groups) * blocks);
  config.blockDim = dim3(whole_warps((vectors + blocks * VECS - 1) / (blocks * VECS)));
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, norm_clusters<T, VECS>, out, x, weight, bias, shape);
  STD_TORCH_CHECK(error == cudaSuccess, "group_norm: ", cudaGetErrorString(error));
}

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
  if (vectors <= 8 * kMaxThreads * 16) {
    const auto run = vectors <= 8 * kMaxThreads * 4   ? launch_clusters<T, 4>
                     : vectors <= 8 * kMaxThreads * 8 ? launch_clusters<T, 8>
                                                      : launch_clusters<T, 16>;
    run(out, x, weight, bias, all_groups, shape, stream);
    return;
  }
  const auto chunks = static_cast<unsigned>((vectors + kVecs * kChunkThreads - 1) / (kVecs * kChunkThreads));
  const int64_t bytes = shape.count * static_cast<int64_t>(sizeof(T));
  int64_t batch = kBatchBytes / bytes < 1 ? 1 : kBatchBytes / bytes;
  if (batch > all_groups) batch = all_groups;
  STD_TORCH_CHECK(batch * chunks <= INT32_MAX, "group_norm: tensor too large");
  using torch::headeronly::ScalarType;
  const auto workspace = torch::stable::new_empty(workspace_like, {2 * batch * (chunks + 1)}, ScalarType::Float);
  auto* statistics = static_cast<float2*>(workspace.mutable_data_ptr());
  auto* merged = chunks > kMergedChunks ? statistics + batch * chunks : nullptr;
  for (int64_t group = 0; group < all_groups; group += batch) {
    const int64_t groups = all_groups - group < batch ? all_groups - group : batch;
    const auto grid = static_cast<unsigned>(groups * chunks);
    const int64_t place = group * shape.count;
    chunk_statistics<T><<<grid, kChunkThreads, 0, stream>>>(statistics, x + place, shape, chunks);
    if (merged != nullptr) {
      merge_chunks<N><<<static_cast<unsigned>(groups), kChunkThreads, 0, stream>>>(merged, statistics, shape, chunks);
    }
    norm_chunks<T><<<grid, kChunkThreads, 0, stream>>>(out + place, x + place, weight, bias, statistics, merged, shape,
                                                       chunks, group);
  }
}

}  // namespace

void group_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, double eps, int64_t groups) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && weight.dim() == 1 && bias.dim() == 1,
                  "group_norm: expected (n, channels, positions) and (channels,)");
  const int64_t n = x.size(0), channels = x.size(1), positions = x.size(2);
  STD_TORCH_CHECK(out.size(0) == n && out.size(1) == channels && out.size(2) == positions &&
                      weight.size(0) == channels && bias.size(0) == channels,
                  "group_norm: shapes differ");
  STD_TORCH_CHECK(groups > 0 && channels % groups == 0, "group_norm: groups must divide channels");
  STD_TORCH_CHECK(n * groups * 8 <= INT32_MAX && channels / groups * positions <= INT32_MAX,
                  "group_norm: tensor too large");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "group_norm: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "group_norm: expected contiguous tensors on one CUDA device");
  }
  if (n == 0 || channels == 0 || positions == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "group_norm: no current stream");
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
    default: STD_TORCH_CHECK(false, "group_norm: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "group_norm: ", cudaGetErrorString(error));
}
