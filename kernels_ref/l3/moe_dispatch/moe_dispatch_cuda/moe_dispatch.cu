// Mixture-of-experts dispatch on CUDA: a stable counting sort in chunks, then rows copied. 16- and 32-bit elements.
//
// The rows are nearly all of the memory traffic, so the last kernel has one token per row of threads: it reads the
// token's row once, 16 bytes at a time, and writes every vector to the k places of the token.
// The places come from three small kernels over chunks of 1024 assignments: count per chunk and expert; prefix sums of
// an expert over the chunks (a warp each), which also add up the load; then every chunk ranks its assignments, a warp
// its 128 in order, by matching equal experts within the warp. All sums are of integers: equal inputs, equal bytes.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kRounds = 4;                  // of 32 assignments for each warp
constexpr int kChunk = kThreads * kRounds;  // assignments of a block
constexpr int kMostExperts = 1024;

// Inclusive sum over the lanes up to this one.
__device__ __forceinline__ int prefix_of_warp(int v, int lane) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int before = __shfl_up_sync(kAll, v, offset);
    if (lane >= offset) v += before;
  }
  return v;
}

// counts: (experts, chunks), how many assignments of a chunk go to an expert. A block per chunk.
__global__ void __launch_bounds__(kThreads) count_chunks(int* __restrict__ counts, const int* __restrict__ ids,
                                                         int total, int experts) {
  __shared__ int histogram[kMostExperts];
  for (int e = threadIdx.x; e < experts; e += kThreads) histogram[e] = 0;
  __syncthreads();
  const int first = blockIdx.x * kChunk;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int n = first + r * kThreads + threadIdx.x;
    if (n < total) atomicAdd(&histogram[ids[n]], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) counts[e * gridDim.x + blockIdx.x] = histogram[e];
}

// counts becomes the sum over earlier chunks, totals: (experts,) the sum over all. A warp per expert.
__global__ void __launch_bounds__(kThreads) sum_chunks(int* __restrict__ counts, int* __restrict__ totals,
                                                       int* __restrict__ load, int chunks, int experts) {
  const int lane = threadIdx.x % 32, expert = blockIdx.x * kWarps + threadIdx.x / 32;
  if (expert >= experts) return;  // a whole warp
  int* row = counts + expert * chunks;
  int sum = 0;
  for (int first = 0; first < chunks; first += 32) {
    const int chunk = first + lane;
    const int count = chunk < chunks ? row[chunk] : 0;
    const int prefix = prefix_of_warp(count, lane);
    if (chunk < chunks) row[chunk] = sum + prefix - count;
    sum += __shfl_sync(kAll, prefix, 31);
  }
  if (lane == 0) {
    totals[expert] = sum;
    load[expert] += sum;
  }
}

// before[e]: the sum of totals below e, for all threads of the block after a barrier; experts <= kMostExperts.
__device__ __forceinline__ void sum_experts(int* before, const int* __restrict__ totals, int experts) {
  constexpr int kEach = kMostExperts / kThreads;  // neighbouring experts of a thread
  __shared__ int of_warps[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int own[kEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = threadIdx.x * kEach + i;
    own[i] = e < experts ? totals[e] : 0;
    sum += own[i];
  }
  const int prefix = prefix_of_warp(sum, lane);
  if (lane == 31) of_warps[warp] = prefix;
  __syncthreads();
  int running = prefix - sum;
  for (int w = 0; w < warp; ++w) running += of_warps[w];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    before[threadIdx.x * kEach + i] = running;
    running += own[i];
  }
}

// places: (total,), where an assignment goes; order is its inverse. A block per chunk; dynamic shared memory holds
// (kWarps, experts) integers: first how many of a warp's assignments go to an expert, then the next place for them.
__global__ void __launch_bounds__(kThreads) rank_chunks(int* __restrict__ places, int* __restrict__ order,
                                                        int* __restrict__ offsets, const int* __restrict__ ids,
                                                        const int* __restrict__ counts, const int* __restrict__ totals,
                                                        int total, int experts) {
  extern __shared__ int next[];
  __shared__ int before[kMostExperts];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int* own = next + warp * experts;
  for (int i = threadIdx.x; i < kWarps * experts; i += kThreads) next[i] = 0;
  sum_experts(before, totals, experts);
  __syncthreads();

  const int first = blockIdx.x * kChunk + warp * 32 * kRounds + lane;
  int expert[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int n = first + r * 32;
    expert[r] = n < total ? ids[n] : -1;
    if (expert[r] >= 0) atomicAdd(&own[expert[r]], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    int place = before[e] + counts[e * gridDim.x + blockIdx.x];
    if (blockIdx.x == 0) offsets[e] = before[e];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int count = next[w * experts + e];
      next[w * experts + e] = place;
      place += count;
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) offsets[experts] = total;
  __syncthreads();

#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const unsigned same = __match_any_sync(kAll, expert[r]);
    const int rank = __popc(same & ((1u << lane) - 1));
    const int place = expert[r] >= 0 ? own[expert[r]] + rank : 0;
    __syncwarp();
    if (expert[r] >= 0) {
      if (rank == 0) own[expert[r]] = place + __popc(same);
      const int n = first + r * 32;
      places[n] = place;
      order[place] = n;
    }
    __syncwarp();
  }
}

// One token per threadIdx.y; a row is `width` units of type U.
template <typename U>
__global__ void __launch_bounds__(256) copy_rows(U* __restrict__ x_sorted, const U* __restrict__ x,
                                                 const int* __restrict__ places, int tokens, int k, int64_t width) {
  const int token = blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= tokens) return;
  const int* to = places + static_cast<int64_t>(token) * k;
#pragma unroll 2
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const U v = x[token * width + i];
    for (int j = 0; j < k; ++j) x_sorted[to[j] * width + i] = v;
  }
}

template <typename U>
void launch_copy(void* x_sorted, const void* x, const int* places, int tokens, int k, int64_t row_bytes,
                 cudaStream_t stream) {
  const int64_t width = row_bytes / static_cast<int64_t>(sizeof(U));
  int wide = 256;  // threads along a row: a power of two, so that short rows share a block
  while (wide > 1 && wide / 2 >= width) wide /= 2;
  const dim3 block(wide, 256 / wide);
  const unsigned blocks = (tokens + block.y - 1) / block.y;
  copy_rows<U><<<blocks, block, 0, stream>>>(static_cast<U*>(x_sorted), static_cast<const U*>(x), places, tokens, k,
                                             width);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void moe_dispatch(const torch::stable::Tensor& x_sorted, const torch::stable::Tensor& order,
                  const torch::stable::Tensor& offsets, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& ids, const torch::stable::Tensor& load) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && x_sorted.dim() == 2 && ids.dim() == 2 && order.dim() == 1 && offsets.dim() == 1 &&
                      load.dim() == 1,
                  "moe_dispatch: expected (tokens, hidden), (tokens, k) and (experts,)");
  const int64_t tokens = x.size(0), hidden = x.size(1), k = ids.size(1), experts = load.size(0), total = tokens * k;
  STD_TORCH_CHECK(ids.size(0) == tokens && x_sorted.size(0) == total && x_sorted.size(1) == hidden &&
                      order.size(0) == total && offsets.size(0) == experts + 1,
                  "moe_dispatch: shapes differ");
  STD_TORCH_CHECK(experts >= 1 && experts <= kMostExperts, "moe_dispatch: expected 1 to 1024 experts");
  STD_TORCH_CHECK(total <= (1 << 24), "moe_dispatch: too many assignments");
  STD_TORCH_CHECK(x_sorted.scalar_type() == x.scalar_type(), "moe_dispatch: dtypes of x and x_sorted differ");
  for (const auto* t : {&order, &offsets, &ids, &load}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Int, "moe_dispatch: expected int32 indices and counts");
  }
  for (const auto* t : {&x_sorted, &order, &offsets, &x, &ids, &load}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "moe_dispatch: expected contiguous tensors on one CUDA device");
  }
  if (total == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "moe_dispatch: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const int64_t chunks = (total + kChunk - 1) / kChunk;
  const auto scratch = torch::stable::new_empty(ids, {experts * chunks + experts + total});
  int* counts = static_cast<int*>(scratch.mutable_data_ptr());
  int* totals = counts + experts * chunks;
  int* places = totals + experts;
  const auto* id = static_cast<const int*>(ids.const_data_ptr());
  const int count = static_cast<int>(experts), assignments = static_cast<int>(total);
  const auto blocks = static_cast<unsigned>(chunks);
  count_chunks<<<blocks, kThreads, 0, stream>>>(counts, id, assignments, count);
  sum_chunks<<<(count + kWarps - 1) / kWarps, kThreads, 0, stream>>>(
      counts, totals, static_cast<int*>(load.mutable_data_ptr()), static_cast<int>(chunks), count);
  rank_chunks<<<blocks, kThreads, kWarps * count * sizeof(int), stream>>>(
      places, static_cast<int*>(order.mutable_data_ptr()), static_cast<int*>(offsets.mutable_data_ptr()), id, counts,
      totals, assignments, count);

  const int64_t element = x.scalar_type() == ScalarType::Float ? 4 : 2;
  STD_TORCH_CHECK(element == 4 || x.scalar_type() == ScalarType::Half || x.scalar_type() == ScalarType::BFloat16,
                  "moe_dispatch: expected float32, float16 or bfloat16");
  void* to = x_sorted.mutable_data_ptr();
  const void* from = x.const_data_ptr();
  const int64_t row_bytes = hidden * element;
  const auto copy = row_bytes % 16 == 0 && aligned(to) && aligned(from) ? launch_copy<uint4>
                    : element == 4                                      ? launch_copy<uint32_t>
                                                                        : launch_copy<uint16_t>;
  copy(to, from, places, static_cast<int>(tokens), static_cast<int>(k), row_bytes, stream);
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "moe_dispatch: ", cudaGetErrorString(error));
}
