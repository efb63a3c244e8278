// Router of a mixture of experts on CUDA: sigmoid, biased top 8, weights. float32.
//
// A warp per token, eight to a block, no shared memory and no barrier: each lane has up to 16 experts in registers,
// loaded as 16-byte vectors where rows are whole vectors. In each of eight rounds a lane finds the best of what it
// has left, two warp reductions by the redux instruction find the largest of all (as an ordered integer) and the
// lowest expert that has it, and the lane that holds it strikes it out. Lane j keeps the j-th expert, so at the end
// eight lanes read their logits again (from L1), sum by shuffles and write one sector of weights and one of ids.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kChosen = 8;
constexpr int kWarps = 8;  // tokens of a block
constexpr unsigned kAll = 0xffffffffu;

// N floats moved as one access.
template <int N>
struct alignas(N * sizeof(float)) Floats {
  float v[N];
};

// 1 / (1 + e^-x). With h = e^-|x| it is 1 / (1 + h), for negative x times h: nothing overflows.
__device__ __forceinline__ float sigmoid(float x) {
  const float h = __expf(-fabsf(x));
  return (x > 0.0f ? 1.0f : h) / (1.0f + h);
}

// Floats as integers in the same order.
__device__ __forceinline__ unsigned ordered(float v) {
  const unsigned bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A lane has the experts (k * 32 + lane) * N + n, k < VECS, n < N, as far as there are such.
template <int N, int VECS>
__global__ void __launch_bounds__(32 * kWarps) route(float* __restrict__ weights, int* __restrict__ ids,
                                                     const float* __restrict__ logits, const float* __restrict__ bias,
                                                     int64_t tokens, int experts, float scaling) {
  const int lane = threadIdx.x;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (token >= tokens) return;  // a whole warp
  const float* row = logits + token * experts;

  float biased[VECS][N];
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int first = (k * 32 + lane) * N;
    const bool inside = first < experts;  // a whole vector: N divides the number of experts
    Floats<N> x{}, b{};
    if (inside) x = *reinterpret_cast<const Floats<N>*>(row + first);
    if (inside) b = *reinterpret_cast<const Floats<N>*>(bias + first);
#pragma unroll
    for (int n = 0; n < N; ++n) biased[k][n] = inside ? sigmoid(x.v[n]) + b.v[n] : -INFINITY;
  }

  int mine = 0;
#pragma unroll 1
  for (int round = 0; round < kChosen; ++round) {
    float best = -INFINITY;
    int expert = INT32_MAX;
#pragma unroll
    for (int k = 0; k < VECS; ++k) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const bool larger = biased[k][n] > best;  // in rising order of experts: the lowest of equal ones stays
        best = larger ? biased[k][n] : best;
        expert = larger ? (k * 32 + lane) * N + n : expert;
      }
    }
    const unsigned key = ordered(best);
    const unsigned largest = __reduce_max_sync(kAll, key);
    const int winner =
        static_cast<int>(__reduce_min_sync(kAll, key == largest ? static_cast<unsigned>(expert) : 0xffffffffu));
    if (lane == round) mine = winner;
    if (winner / N % 32 == lane) {
#pragma unroll
      for (int k = 0; k < VECS; ++k) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
          if ((k * 32 + lane) * N + n == winner) biased[k][n] = -INFINITY;
        }
      }
    }
  }

  const float score = lane < kChosen ? sigmoid(row[mine]) : 0.0f;
  float sum = score;
#pragma unroll
  for (int offset = kChosen / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
  if (lane < kChosen) {
    weights[token * kChosen + lane] = scaling * (score / (sum + 1e-20f));
    ids[token * kChosen + lane] = mine;
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void moe_gating(const torch::stable::Tensor& weights, const torch::stable::Tensor& ids,
                const torch::stable::Tensor& logits, const torch::stable::Tensor& bias, double scaling) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(weights.dim() == 2 && ids.dim() == 2 && logits.dim() == 2 && bias.dim() == 1,
                  "moe_gating: expected (tokens, 8) twice, (tokens, experts) and (experts,)");
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  STD_TORCH_CHECK(weights.size(0) == tokens && weights.size(1) == kChosen && ids.size(0) == tokens &&
                      ids.size(1) == kChosen && bias.size(0) == experts,
                  "moe_gating: shapes differ");
  STD_TORCH_CHECK(experts >= kChosen && experts <= 512, "moe_gating: expected 8 to 512 experts");
  STD_TORCH_CHECK(tokens <= INT32_MAX, "moe_gating: too many tokens");
  STD_TORCH_CHECK(weights.scalar_type() == ScalarType::Float && logits.scalar_type() == ScalarType::Float &&
                      bias.scalar_type() == ScalarType::Float && ids.scalar_type() == ScalarType::Int,
                  "moe_gating: expected float32, and int32 ids");
  for (const auto* t : {&weights, &ids, &logits, &bias}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == logits.get_device_index(),
                    "moe_gating: expected contiguous tensors on one CUDA device");
  }
  if (tokens == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(logits.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(logits.get_device_index(), &raw_stream) == 0,
                  "moe_gating: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const bool whole = experts % 4 == 0 && aligned(logits.const_data_ptr()) && aligned(bias.const_data_ptr());
  const auto kernel = whole ? (experts <= 128   ? route<4, 1>
                               : experts <= 256 ? route<4, 2>
                               : experts <= 384 ? route<4, 3>
                                                : route<4, 4>)
                            : (experts <= 128   ? route<1, 4>
                               : experts <= 256 ? route<1, 8>
                                                : route<1, 16>);
  kernel<<<static_cast<unsigned>((tokens + kWarps - 1) / kWarps), dim3(32, kWarps), 0, stream>>>(
      static_cast<float*>(weights.mutable_data_ptr()), static_cast<int*>(ids.mutable_data_ptr()),
      static_cast<const float*>(logits.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()), tokens,
      static_cast<int>(experts), static_cast<float>(scaling));
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "moe_gating: ", cudaGetErrorString(error));
}
