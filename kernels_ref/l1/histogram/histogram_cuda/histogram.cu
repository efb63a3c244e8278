// Histogram over equal bins on CUDA: float16, bfloat16, float32.
//
// Every block counts in shared memory and adds what it has to the result once, at the end. Few bins are kept in 32
// copies, one for each lane, in banks of their own: lanes never wait for each other. More bins are kept in up to eight
// copies, shared by warps in turn; lanes of a warp that count in the same bin are added up by the hardware, since the
// increment is a constant. Two blocks of 1024 threads per SM walk
// over the input in strides, so that few blocks flush, each thread with two 16-byte loads in flight.
// All sums are integers: their order does not matter.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 1024, kBlocksPerSm = 2, kInFlight = 2;
constexpr int kMostBins = 8192, kMostCopies = 8, kLaneCopies = 32;
constexpr int kSharedInts = 12288;  // 48 KiB, which needs no attribute to be set

// N elements moved as one access of N * sizeof(T) bytes.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

struct Bins {
  float low, high, scale;
  int bins;
};

// Rounded twice and never fused: the bin of an element near an edge depends on it.
template <bool LANES>
__device__ __forceinline__ void count_one(int* table, float v, const Bins& b) {
  if (v >= b.low && v <= b.high) {
    const int at = static_cast<int>(__fmul_rn(__fsub_rn(v, b.low), b.scale));
    if constexpr (LANES) {
      atomicAdd(table + min(at, b.bins - 1) * kLaneCopies, 1);
    } else {
      atomicAdd(table + min(at, b.bins - 1), 1);
    }
  }
}

// Dynamic shared memory: `copies` tables of `bins` ints, or with LANES `bins` times one int for each of the 32 lanes.
// The last count % N elements are counted one by one.
template <typename T, int N, bool LANES>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) count_all(int* __restrict__ counts, const T* __restrict__ x,
                                                                   int64_t count, Bins b, int copies) {
  extern __shared__ int tables[];
  using Vec = Pack<T, N>;
  for (int i = threadIdx.x; i < copies * b.bins; i += kThreads) tables[i] = 0;
  __syncthreads();

  int* table = tables + (LANES ? threadIdx.x % 32 : threadIdx.x / 32 % copies * b.bins);
  const int64_t vectors = count / N, step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = first; i < vectors; i += kInFlight * step) {
    Vec v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * step < vectors) v[k] = reinterpret_cast<const Vec*>(x)[i + k * step];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * step < vectors) {
#pragma unroll
        for (int n = 0; n < N; ++n) count_one<LANES>(table, to_float(v[k].v[n]), b);
      }
    }
  }
  const int64_t rest = vectors * N + first;
  if (rest < count) count_one<LANES>(table, to_float(x[rest]), b);
  __syncthreads();

  for (int bin = threadIdx.x; bin < b.bins; bin += kThreads) {
    int sum = 0;
    for (int copy = 0; copy < copies; ++copy) {
      // Neighbouring threads begin at neighbouring lanes' copies, which lie in different banks.
      sum += tables[LANES ? bin * kLaneCopies + (bin + copy) % kLaneCopies : copy * b.bins + bin];
    }
    if (sum != 0) atomicAdd(counts + bin, sum);
  }
}

template <typename T, int N>
void launch_vectors(int* counts, const T* x, int64_t count, const Bins& b, int sms, cudaStream_t stream) {
  const bool lanes = b.bins * kLaneCopies <= kSharedInts;
  const int copies = lanes ? kLaneCopies : std::max(1, std::min(kMostCopies, kSharedInts / b.bins));
  // A short input takes fewer blocks: every one of them costs a flush. At least one, for the tail.
  const int64_t per_block = static_cast<int64_t>(kThreads) * kInFlight * N;
  const int64_t most = static_cast<int64_t>(sms) * kBlocksPerSm;
  const int64_t blocks = std::min((count + per_block - 1) / per_block, most);
  const auto kernel = lanes ? count_all<T, N, true> : count_all<T, N, false>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, copies * b.bins * sizeof(int), stream>>>(counts, x, count, b,
                                                                                             copies);
}

template <typename T>
void launch(int* counts, const void* x, int64_t count, const Bins& b, int sms, cudaStream_t stream) {
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0) {
    launch_vectors<T, 16 / sizeof(T)>(counts, static_cast<const T*>(x), count, b, sms, stream);
  } else {
    launch_vectors<T, 1>(counts, static_cast<const T*>(x), count, b, sms, stream);
  }
}

}  // namespace

void histogram(const torch::stable::Tensor& counts, const torch::stable::Tensor& x, double low, double high) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(counts.dim() == 1 && x.dim() == 1, "histogram: expected (bins,) and (count,)");
  const int64_t bins = counts.size(0), count = x.size(0);
  STD_TORCH_CHECK(bins >= 1 && bins <= kMostBins && low < high, "histogram: expected 1 to 8192 bins and low < high");
  STD_TORCH_CHECK(counts.scalar_type() == ScalarType::Int, "histogram: counts are int32");
  for (const auto* t : {&counts, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "histogram: expected contiguous tensors on one CUDA device");
  }
  if (count == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "histogram: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  int sms = 0;
  STD_TORCH_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, x.get_device_index()) == cudaSuccess,
                  "histogram: cannot ask for the number of SMs");
  const Bins b{static_cast<float>(low), static_cast<float>(high),
               static_cast<float>(static_cast<double>(bins) / (high - low)), static_cast<int>(bins)};
  int* to = static_cast<int*>(counts.mutable_data_ptr());
  switch (x.scalar_type()) {
    case ScalarType::Float: launch<float>(to, x.const_data_ptr(), count, b, sms, stream); break;
    case ScalarType::Half: launch<__half>(to, x.const_data_ptr(), count, b, sms, stream); break;
    case ScalarType::BFloat16: launch<__nv_bfloat16>(to, x.const_data_ptr(), count, b, sms, stream); break;
    default: STD_TORCH_CHECK(false, "histogram: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "histogram: ", cudaGetErrorString(error));
}
