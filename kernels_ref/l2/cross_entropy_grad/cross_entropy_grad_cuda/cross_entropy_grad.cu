// Cross-entropy and its gradient in place of the logits, on CUDA: float16, bfloat16, float32.
//
// A row is read from memory once and written once, however long: its vectors of 16 bytes stay in registers in the
// storage dtype, at most 4 a thread (8 of float32). Rows of up to 2 KB get a warp each and never synchronise, rows of
// up to 32 KB a block, and vocabularies a cluster of 2, 4 or 8 blocks, which exchange partial results by distributed
// shared memory. Whoever holds the target's logit writes the loss, so nobody reads what another thread may have
// replaced. Rows that do not begin at a multiple of 16 bytes use the same vectors; only the first and the last of a
// row are taken apart. Beyond a cluster's registers the row is read twice.

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

// Elements j .. of a row of `cols` that make 16 bytes, as they lie in memory; those outside of it are -infinity.
// row + j is aligned to 16 bytes.
template <typename T>
__device__ __forceinline__ uint4 load_words(const T* row, int j, int cols) {
  constexpr int N = 16 / sizeof(T);
  if (j >= 0 && j + N <= cols) return *reinterpret_cast<const uint4*>(row + j);
  Pack<T, N> v;
#pragma unroll
  for (int n = 0; n < N; ++n) v.v[n] = j + n >= 0 && j + n < cols ? row[j + n] : from_float<T>(-INFINITY);
  uint4 words;
  memcpy(&words, &v, sizeof(words));
  return words;
}
// The empty instruction keeps the compiler from taking 16-bit elements apart where they are loaded: every load would be
// waited for before the next one starts.
template <typename T>
__device__ __forceinline__ Pack<T, 16 / sizeof(T)> taken_apart(uint4 words) {
  asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
  Pack<T, 16 / sizeof(T)> v;
  memcpy(&v, &words, sizeof(v));
  return v;
}
// N is 1 where the row is not aligned.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_edge(const T* row, int j, int cols) {
  if constexpr (N * sizeof(T) == sizeof(uint4)) {
    return taken_apart<T>(load_words(row, j, cols));
  } else {
    static_assert(N == 1);
    return {{j >= 0 && j < cols ? row[j] : from_float<T>(-INFINITY)}};
  }
}
template <typename T, int N>
__device__ __forceinline__ void store_edge(T* row, int j, int cols, const Pack<T, N>& v) {
  if (j >= 0 && j + N <= cols) {
    if constexpr (sizeof(v) == sizeof(uint4)) {
      // One store: nvcc splits the assignment of an array that was assembled in registers into smaller ones.
      uint4 bits;
      memcpy(&bits, &v, sizeof(bits));
      __stcs(reinterpret_cast<uint4*>(row + j), bits);
    } else {
      *reinterpret_cast<Pack<T, N>*>(row + j) = v;
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < N; ++n)
    if (j + n >= 0 && j + n < cols) row[j + n] = v.v[n];
}

// What one row is multiplied and compared with.
struct Row {
  float factor;  // grad_loss / sum
  float max, log_sum, grad;
  int target;
};

// Elements j .. j + N - 1 of the row become their gradient; the thread that has the target writes the loss.
template <typename T, int N>
__device__ __forceinline__ void replace(Pack<T, N>& v, int j, const Row& row, float* loss) {
  const int at = row.target - j;
  const bool has_target = at >= 0 && at < N;  // one test for a vector: hardly any has it
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float x = to_float(v.v[n]);
    const float gradient = __expf(x - row.max) * row.factor;
    v.v[n] = from_float<T>(gradient);
    if (has_target && n == at) {
      v.v[n] = from_float<T>(gradient - row.grad);
      *loss = row.log_sum + (row.max - x);
    }
  }
}

// Parts = gridDim.y blocks (one cluster) make a row, or each warp of a block one when blockDim.x is 32. Vectors are
// counted from the 16-byte boundary at or before the row's first element; a thread has every blockDim.x-th of a part.
template <typename T, int VECS>
__global__ void __launch_bounds__(1024) gradient_registers(float* __restrict__ loss, T* __restrict__ logits,
                                                             const int64_t* __restrict__ target,
                                                             const float* __restrict__ grad_loss, int64_t tokens,
                                                             int vocab, int64_t ignore_index) {
  constexpr int N = 16 / sizeof(T);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= tokens) return;  // whole warps only: blockDim.y > 1 means a warp per row
  T* x = logits + row * vocab;
  const int shift = static_cast<int>(row * vocab % N);
  const int first = static_cast<int>((blockIdx.y * VECS * blockDim.x + threadIdx.x) * N) - shift;
  const int step = static_cast<int>(blockDim.x) * N;
  const int64_t own_target = target[row];
  if (own_target == ignore_index) {  // all threads of the row alike, so nobody waits for them
    if (threadIdx.x == 0 && blockIdx.y == 0) loss[row] = 0.0f;
    Pack<T, N> zero;
#pragma unroll
    for (int n = 0; n < N; ++n) zero.v[n] = from_float<T>(0.0f);
#pragma unroll
    for (int k = 0; k < VECS; ++k) store_edge<T, N>(x, first + k * step, vocab, zero);
    return;
  }

  uint4 words[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) words[k] = load_words(x, first + k * step, vocab);
  Pack<T, N> values[VECS];
#pragma unroll
  for (int k = 0; k < VECS; ++k) values[k] = taken_apart<T>(words[k]);
  Partial part{-FLT_MAX, 0.0f};
#pragma unroll
  for (int k = 0; k < VECS; ++k) part.max = fmaxf(part.max, largest(values[k]));
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) part.sum += __expf(to_float(values[k].v[n]) - part.max);  // 0 outside the row
  }
  part = reduce_row(part);
  const float grad = grad_loss[row];
  const Row all{grad / part.sum, part.max, logf(part.sum), grad, static_cast<int>(own_target)};
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    replace(values[k], first + k * step, all, loss + row);
    store_edge<T, N>(x, first + k * step, vocab, values[k]);
  }
}

// A block per row of any length; N is 1 where the logits are not aligned to 16 bytes.
template <typename T, int N>
__global__ void __launch_bounds__(1024) gradient_twice(float* __restrict__ loss, T* __restrict__ logits,
                                                       const int64_t* __restrict__ target,
                                                       const float* __restrict__ grad_loss, int vocab,
                                                       int64_t ignore_index) {
  const int64_t row = blockIdx.x;
  T* x = logits + row * vocab;
  const int shift = static_cast<int>(row * vocab % N);
  const int first = static_cast<int>(threadIdx.x) * N - shift, step = static_cast<int>(blockDim.x) * N;
  const bool ignored = target[row] == ignore_index;
  // The sum is relative to this thread's own maximum so far, and is rescaled when the maximum grows.
  Partial part{-FLT_MAX, 0.0f};
  if (!ignored) {
#pragma unroll 4
    for (int j = first; j < vocab; j += step) {
      const Pack<T, N> v = load_edge<T, N>(x, j, vocab);
      const float max = fmaxf(part.max, largest(v));
      part.sum *= __expf(part.max - max);
      part.max = max;
#pragma unroll
      for (int n = 0; n < N; ++n) part.sum += __expf(to_float(v.v[n]) - max);
    }
    part = reduce_row(part);  // a thread replaces only what it has read itself
  } else if (threadIdx.x == 0) {
    loss[row] = 0.0f;
  }
  const float grad = grad_loss[row];
  const Row all{grad / part.sum, part.max, logf(part.sum), grad, static_cast<int>(target[row])};
#pragma unroll 2
  for (int j = first; j < vocab; j += step) {
    Pack<T, N> v = load_edge<T, N>(x, j, vocab);
    if (ignored) {
#pragma unroll
      for (int n = 0; n < N; ++n) v.v[n] = from_float<T>(0.0f);
    } else {
      replace(v, j, all, loss + row);
    }
    store_edge<T, N>(x, j, vocab, v);
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
unsigned whole_warps(int threads) { return static_cast<unsigned>((threads + 31) / 32 * 32); }

template <typename T>
void launch(float* loss, T* logits, const int64_t* target, const float* grad_loss, int64_t tokens, int vocab,
            int64_t ignore_index, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  // A row that begins inside a vector needs one more.
  const int vectors = vocab % N == 0 ? vocab / N : (vocab + 2 * N - 2) / N;
  const auto blocks = static_cast<unsigned>(tokens);
  if (!aligned(logits)) {
    const unsigned threads = vocab >= 1024 ? 1024 : whole_warps(vocab);
    gradient_twice<T, 1><<<blocks, threads, 0, stream>>>(loss, logits, target, grad_loss, vocab, ignore_index);
    return;
  }
  // Elements of 16 bits become floats for the arithmetic: more than 4 vectors of them would not fit 64 registers.
  constexpr int MOST = sizeof(T) == 4 ? 8 : 4;
  if (vectors > 8 * 1024 * MOST) {  // 8 blocks of 1024 threads
    gradient_twice<T, N><<<blocks, 1024, 0, stream>>>(loss, logits, target, grad_loss, vocab, ignore_index);
    return;
  }
  // Few vectors per thread keeps many threads loading; blocks of 512 threads, where 8 of them are enough, so that two
  // fit an SM.
  const bool warp_per_row = vectors <= 128;
  const int parts = vectors <= 2048 ? 1 : vectors <= 4096 ? 2 : vectors <= 8192 ? 4 : 8;
  const int share = (vectors + parts - 1) / parts;
  const int unit = warp_per_row ? 32 : 512;
  const int vecs = share <= unit ? 1 : share <= 2 * unit ? 2 : share <= 8 * unit ? 4 : share <= 6 * 1024 ? 6 : 8;
  cudaLaunchConfig_t config{};
  config.blockDim = warp_per_row ? dim3(32, 4) : dim3(whole_warps((share + vecs - 1) / vecs));
  config.gridDim = dim3(warp_per_row ? (blocks + 3) / 4 : blocks, static_cast<unsigned>(parts));
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {1, static_cast<unsigned>(parts), 1};
  config.attrs = &cluster;
  config.numAttrs = parts > 1 ? 1 : 0;
  const auto kernel = vecs == 1   ? gradient_registers<T, 1>
                      : vecs == 2 ? gradient_registers<T, 2>
                      : vecs == 4 ? gradient_registers<T, 4>
                      : vecs == 6 ? gradient_registers<T, MOST < 6 ? MOST : 6>
                                  : gradient_registers<T, MOST>;
  cudaLaunchKernelEx(&config, kernel, loss, logits, target, grad_loss, tokens, vocab,
                     ignore_index);  // its error is read by the caller
}

}  // namespace

void cross_entropy_grad(const torch::stable::Tensor& loss, const torch::stable::Tensor& logits,
                        const torch::stable::Tensor& target, const torch::stable::Tensor& grad_loss,
                        int64_t ignore_index) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(logits.dim() == 2 && loss.dim() == 1 && target.dim() == 1 && grad_loss.dim() == 1,
                  "cross_entropy_grad: expected logits (tokens, vocab), all others (tokens,)");
  const int64_t tokens = logits.size(0), vocab = logits.size(1);
  STD_TORCH_CHECK(loss.size(0) == tokens && target.size(0) == tokens && grad_loss.size(0) == tokens,
                  "cross_entropy_grad: shapes differ");
  STD_TORCH_CHECK(loss.scalar_type() == ScalarType::Float && grad_loss.scalar_type() == ScalarType::Float &&
                      target.scalar_type() == ScalarType::Long,
                  "cross_entropy_grad: expected float32 loss and grad_loss, int64 target");
  STD_TORCH_CHECK(tokens <= INT32_MAX && vocab <= (1 << 30), "cross_entropy_grad: tensor too large");
  for (const auto* t : {&loss, &logits, &target, &grad_loss})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == logits.get_device_index(),
                    "cross_entropy_grad: expected contiguous tensors on one CUDA device");
  if (tokens == 0 || vocab == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(logits.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(logits.get_device_index(), &raw_stream) == 0,
                  "cross_entropy_grad: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<float*>(loss.mutable_data_ptr()), static_cast<T*>(logits.mutable_data_ptr()),
           static_cast<const int64_t*>(target.const_data_ptr()), static_cast<const float*>(grad_loss.const_data_ptr()),
           tokens, static_cast<int>(vocab), ignore_index, stream);
  };
  switch (logits.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "cross_entropy_grad: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "cross_entropy_grad: ", cudaGetErrorString(error));
}
