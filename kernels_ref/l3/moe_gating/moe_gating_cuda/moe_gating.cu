// Router of a mixture of experts on CUDA: sigmoid, biased top 8, weights. float32.
//
// A warp per token, eight to a block, no block-wide barrier: each lane has up to 16 experts in registers, loaded as
// 16-byte vectors where rows are whole vectors. The 8 best experts lie with the 8 lanes whose own best are the largest,
// so a sort of the lanes' best (15 shuffles) says which lanes' experts go on; shared memory deals those out to all lanes.
// The same once more leaves at most one expert a lane, and one sort of experts with their ids brings the 8 best in order
// to the first 8 lanes. These read their logits again (from L1), sum by shuffles and write one sector of weights and one
// of ids.

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

// 1 / (1 + e^-x). Where e^-x overflows, it is 0.
__device__ __forceinline__ float sigmoid(float x) {
  float power, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + power));
  return result;
}

// Sorts the lanes' values, largest first, and their ids with them. Merges mirror the second half, so that which of two
// lanes keeps the larger value depends on one bit of its number only.
template <bool WITH_IDS>
__device__ __forceinline__ void sort_lanes(float& value, int& id, int lane) {
#pragma unroll
  for (int size = 2; size <= 32; size *= 2) {
#pragma unroll
    for (int stride = size / 2; stride > 0; stride /= 2) {
      const int distance = stride == size / 2 ? size - 1 : stride;
      const bool first = (lane & stride) == 0;
      const float other = __shfl_xor_sync(kAll, value, distance);
      if constexpr (WITH_IDS) {
        const int other_id = __shfl_xor_sync(kAll, id, distance);
        // The same difference in both lanes but for its sign: of equal values both stay.
        const bool swap = (first ? 1.0f : -1.0f) * (other - value) > 0.0f;
        value = swap ? other : value;
        id = swap ? other_id : id;
      } else {
        value = (other > value) == first ? other : value;
      }
    }
  }
}

// Place of a lane among the 8 lanes with the largest `best`, 8 or more for other lanes.
__device__ __forceinline__ int place_of(float best, int lane) {
  float sorted = best;
  int none = 0;
  sort_lanes<false>(sorted, none, lane);
  const float eighth = __shfl_sync(kAll, sorted, kChosen - 1);
  const unsigned larger = __ballot_sync(kAll, best > eighth), equal = __ballot_sync(kAll, best == eighth);
  const unsigned before = (1u << lane) - 1;
  const int place = __popc(larger & before), later = __popc(larger) + __popc(equal & before);
  return best > eighth ? place : best == eighth ? later : kChosen;
}

template <int COUNT>
__device__ __forceinline__ float largest_of(const float (&values)[COUNT]) {
  float best = values[0];
#pragma unroll
  for (int i = 1; i < COUNT; ++i) best = fmaxf(best, values[i]);
  return best;
}

// A lane has the experts (k * 32 + lane) * N + n, k < VECS, n < N, as far as there are such.
template <int N, int VECS>
__global__ void __launch_bounds__(32 * kWarps) route(float* __restrict__ weights, int* __restrict__ ids,
                                                     const float* __restrict__ logits, const float* __restrict__ bias,
                                                     int64_t tokens, int experts, float scaling) {
  constexpr int kOwn = N * VECS, kDealt = kOwn / 4;  // experts of a lane at first, and when 8 lanes' are dealt out
  static_assert(kOwn % 4 == 0 && kOwn <= 16);
  __shared__ __align__(16) float all_values[kWarps][kChosen * kOwn];
  __shared__ int all_ids[kWarps][kChosen * 4];
  const int lane = threadIdx.x;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (token >= tokens) return;  // a whole warp
  const float* row = logits + token * experts;
  float* const shared_values = all_values[threadIdx.y];
  int* const shared_ids = all_ids[threadIdx.y];

  float biased[kOwn];
#pragma unroll
  for (int k = 0; k < VECS; ++k) {
    const int first = (k * 32 + lane) * N;
    const bool inside = first < experts;  // a whole vector: N divides the number of experts
    Floats<N> x{}, b{};
    if (inside) x = *reinterpret_cast<const Floats<N>*>(row + first);
    if (inside) b = *reinterpret_cast<const Floats<N>*>(bias + first);
#pragma unroll
    for (int n = 0; n < N; ++n) biased[k * N + n] = inside ? sigmoid(x.v[n]) + b.v[n] : -INFINITY;
  }

  int place = place_of(largest_of(biased), lane);
  if (place < kChosen) {
#pragma unroll
    for (int i = 0; i < kOwn; i += 4) {
      *reinterpret_cast<float4*>(shared_values + place * kOwn + i) =
          make_float4(biased[i], biased[i + 1], biased[i + 2], biased[i + 3]);
    }
    shared_ids[place] = lane;
  }
  __syncwarp();
  float dealt[kDealt];
  int dealt_ids[kDealt];
  const int source = shared_ids[lane / 4];
#pragma unroll
  for (int i = 0; i < kDealt; ++i) {
    const int own = lane % 4 * kDealt + i;
    dealt[i] = shared_values[lane * kDealt + i];
    dealt_ids[i] = (own / N * 32 + source) * N + own % N;
  }
  float value = dealt[0];
  int id = dealt_ids[0];
  if constexpr (kDealt > 1) {
    place = place_of(largest_of(dealt), lane);
    __syncwarp();  // all have read
    if (place < kChosen) {
#pragma unroll
      for (int i = 0; i < kDealt; ++i) {
        shared_values[place * kDealt + i] = dealt[i];
        shared_ids[place * kDealt + i] = dealt_ids[i];
      }
    }
    __syncwarp();
    value = lane < kChosen * kDealt ? shared_values[lane] : -INFINITY;
    id = lane < kChosen * kDealt ? shared_ids[lane] : 0;
  }
  sort_lanes<true>(value, id, lane);

  id = min(max(id, 0), experts - 1);  // a row of NaN may end anywhere, but not outside
  const float score = lane < kChosen ? sigmoid(row[id]) : 0.0f;
  float sum = score;
#pragma unroll
  for (int offset = kChosen / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
  if (lane < kChosen) {
    weights[token * kChosen + lane] = scaling * __fdividef(score, sum + 1e-20f);
    ids[token * kChosen + lane] = id;
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
