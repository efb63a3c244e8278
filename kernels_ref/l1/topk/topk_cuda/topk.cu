// The k <= 64 largest elements of every row on CUDA: float16, bfloat16, float32.
//
// One pass over the row by a block (a cluster of up to 8, where there are too few rows to fill the GPU). An element and
// its position make one 64-bit key, so that keys are all different and sort as wanted: larger value first, of equal
// ones the smaller position. Keys above a threshold go to a list in shared memory; when it has become long it is
// sorted, cut to k, and its last key is the new threshold. After the first few thousand elements hardly any passes, so the row
// streams by at the cost of a comparison. An input in ascending order is the worst case: correct, but it sorts often.
// Where a key lands in the list depends on the order of threads, but which keys are in it does not.

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

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

// What is loaded as one: 16 bytes, or an element where the row is not aligned.
template <typename T, int N>
using Words = std::conditional_t<N * sizeof(T) == sizeof(uint4), uint4, Pack<T, N>>;
// Elements j .. j + N - 1 of a row of `cols`, as they lie in memory; those outside of it are -infinity. row + j is
// aligned to a whole vector.
template <typename T, int N>
__device__ __forceinline__ Words<T, N> load_words(const T* row, int j, int cols) {
  if (j >= 0 && j + N <= cols) return *reinterpret_cast<const Words<T, N>*>(row + j);
  Pack<T, N> v;
#pragma unroll
  for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(-INFINITY);
  Words<T, N> words;
  memcpy(&words, &v, sizeof(words));
  return words;
}
// The empty instruction keeps the compiler from taking 16-bit elements apart where they are loaded: every load would be
// waited for before the next one starts.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> taken_apart(Words<T, N> words) {
  if constexpr (sizeof(words) == sizeof(uint4)) {
    asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
  }
  Pack<T, N> v;
  memcpy(&v, &words, sizeof(v));
  return v;
}

using Key = unsigned long long;  // 0 is below all keys
constexpr int kThreads = 512, kCapacity = 2048, kMost = 64;

// Flips bits so that unsigned integers compare as the floats do; and back.
__device__ __forceinline__ Key make_key(float v, int position) {
  const unsigned bits = __float_as_uint(v);
  const unsigned ordered = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
  return static_cast<Key>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(position));
}
__device__ __forceinline__ float value_of(Key key) {
  const auto ordered = static_cast<unsigned>(key >> 32);
  return __uint_as_float(ordered >> 31 ? ordered ^ 0x80000000u : ~ordered);
}
__device__ __forceinline__ int64_t position_of(Key key) { return 0xffffffffu - static_cast<unsigned>(key); }

// The keys found so far, in shared memory. All its functions are for all threads of the block together.
struct List {
  Key keys[kCapacity];
  int size;

  // Sorts in descending order, by a bitonic network, and keeps the first k. Returns the key that others must exceed.
  __device__ __noinline__ Key keep(int k) {
    const int found = size;
    int width = 2;
    while (width < found) width *= 2;
    for (int i = found + static_cast<int>(threadIdx.x); i < width; i += kThreads) keys[i] = 0;
    __syncthreads();
    for (int run = 2; run <= width; run *= 2) {
      for (int stride = run / 2; stride > 0; stride /= 2) {
        for (int i = threadIdx.x; i < width / 2; i += kThreads) {
          const int low = 2 * i - (i & (stride - 1)), high = low + stride;
          const Key a = keys[low], b = keys[high];
          if ((a < b) == ((low & run) == 0)) {
            keys[low] = b;
            keys[high] = a;
          }
        }
        __syncthreads();
      }
    }
    if (threadIdx.x == 0) size = min(found, k);
    __syncthreads();
    return found >= k ? keys[k - 1] : 0;
  }
};

// gridDim.y blocks (one cluster) have a row. Vectors are counted from the 16-byte boundary at or before the row's first
// element; in a round a block takes kThreads * VECS of them.
template <typename T>
__global__ void __launch_bounds__(kThreads) topk_rows(T* __restrict__ values, int64_t* __restrict__ indices,
                                                      const T* __restrict__ all, int cols, int k) {
  constexpr int VECS = 2, N = 16 / sizeof(T), ROUND = kThreads * VECS * N;
  __shared__ List list;
  const int64_t row = blockIdx.x;
  const T* x = all + row * cols;
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(x) / sizeof(T) % N);
  if (threadIdx.x == 0) list.size = 0;
  __syncthreads();

  Key threshold = 0;
  float least = -INFINITY;  // its value: a cheap first test
  int kept = 0;             // what the list holds, known to all threads
  for (int begin = static_cast<int>(blockIdx.y) * ROUND - shift; begin < cols;
       begin += static_cast<int>(gridDim.y) * ROUND) {
    const int first = begin + static_cast<int>(threadIdx.x) * N;
    Words<T, N> words[VECS];
#pragma unroll
    for (int i = 0; i < VECS; ++i) words[i] = load_words<T, N>(x, first + i * kThreads * N, cols);
    Pack<T, N> v[VECS];
#pragma unroll
    for (int i = 0; i < VECS; ++i) v[i] = taken_apart<T, N>(words[i]);
    unsigned hits = 0;
#pragma unroll
    for (int i = 0; i < VECS; ++i) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float value = to_float(v[i].v[n]);
        const int j = first + i * kThreads * N + n;
        if (value >= least && j >= 0 && j < cols && make_key(value, j) > threshold) hits |= 1u << (i * N + n);
      }
    }
    int place = hits != 0 ? atomicAdd(&list.size, __popc(hits)) : 0;
    __syncthreads();
    const int wanted = list.size;
    if (wanted <= kCapacity) {
#pragma unroll
      for (int i = 0; i < VECS; ++i) {
#pragma unroll
        for (int n = 0; n < N; ++n)
          if (hits >> (i * N + n) & 1) list.keys[place++] = make_key(to_float(v[i].v[n]), first + i * kThreads * N + n);
      }
      __syncthreads();
      kept = wanted;
      if (kept > kCapacity / 2) {
        threshold = list.keep(k);
        least = threshold == 0 ? -INFINITY : value_of(threshold);
        kept = min(kept, k);
      }
      continue;
    }
    // Too many at once: nothing has been written; again, but an element of every thread at a time.
    __syncthreads();
    if (threadIdx.x == 0) list.size = kept;
    __syncthreads();
    for (int e = 0; e < VECS * N; ++e) {
      if (kept + kThreads > kCapacity) {
        threshold = list.keep(k);
        least = threshold == 0 ? -INFINITY : value_of(threshold);
      }
      const int j = first + e / N * kThreads * N + e % N;
      if (j >= 0 && j < cols) {
        const Key key = make_key(to_float(x[j]), j);
        if (key > threshold) list.keys[atomicAdd(&list.size, 1)] = key;
      }
      __syncthreads();
      kept = list.size;
      __syncthreads();  // everybody has read it before it changes
    }
  }
  list.keep(k);

  const cg::cluster_group cluster = cg::this_cluster();
  if (gridDim.y > 1) {
    cluster.sync();
    if (blockIdx.y == 0) {
      int total = list.size;
      for (unsigned rank = 1; rank < gridDim.y; ++rank) {
        const List* other = cluster.map_shared_rank(&list, rank);
        const int more = other->size;  // at most kMost of each: 8 * 64 keys fit
        for (int i = threadIdx.x; i < more; i += kThreads) list.keys[total + i] = other->keys[i];
        total += more;
      }
      __syncthreads();
      if (threadIdx.x == 0) list.size = total;
      __syncthreads();
      list.keep(k);
    }
    cluster.sync();  // no block may end while another one reads its shared memory
    if (blockIdx.y != 0) return;
  }
  for (int i = threadIdx.x; i < k; i += kThreads) {
    values[row * k + i] = from_float<T>(value_of(list.keys[i]));
    indices[row * k + i] = position_of(list.keys[i]);
  }
}

template <typename T>
void launch(T* values, int64_t* indices, const T* x, int64_t rows, int cols, int k, cudaStream_t stream) {
  static_assert(8 * kMost <= kCapacity, "a cluster's winners must fit the list");
  // 264 blocks of 512 threads fill half of an H100; a part keeps two rounds of 16 KB at least.
  int64_t parts = 1;
  while (parts < 8 && rows * parts < 264 && cols * sizeof(T) >= parts * 2 * 32768) parts *= 2;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(kThreads);
  config.gridDim = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(parts));
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, static_cast<unsigned>(parts), 1};
  config.attrs = &cluster;
  config.numAttrs = parts > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, topk_rows<T>, values, indices, x, cols, k);  // its error is read by the caller
}

}  // namespace

void topk(const torch::stable::Tensor& values, const torch::stable::Tensor& indices, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && values.dim() == 2 && indices.dim() == 2, "topk: expected (rows, cols) and (rows, k)");
  const int64_t rows = x.size(0), cols = x.size(1), k = values.size(1);
  STD_TORCH_CHECK(values.size(0) == rows && indices.size(0) == rows && indices.size(1) == k, "topk: shapes differ");
  STD_TORCH_CHECK(k >= 1 && k <= 64 && k <= cols, "topk: expected 1 <= k <= 64 and k <= cols");
  STD_TORCH_CHECK(values.scalar_type() == x.scalar_type() && indices.scalar_type() == ScalarType::Long,
                  "topk: expected values like x, and int64 indices");
  STD_TORCH_CHECK(rows <= INT32_MAX && cols <= (1 << 30), "topk: tensor too large");
  for (const auto* t : {&values, &indices, &x})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "topk: expected contiguous tensors on one CUDA device");
  if (rows == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "topk: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(values.mutable_data_ptr()), static_cast<int64_t*>(indices.mutable_data_ptr()),
           static_cast<const T*>(x.const_data_ptr()), rows, static_cast<int>(cols), static_cast<int>(k), stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "topk: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "topk: ", cudaGetErrorString(error));
}
