// Router of a mixture of experts on the CPU: sigmoid, biased top 8, weights.
//
// A token's scores and biased scores are made in whole vectors into two rows of scratch that stay in the L1 cache. The
// best 8 are then kept in order while walking along the row: after the first few experts nearly all fail the one
// comparison with the eighth best, where a general top-k partitions or sorts the row.
// The sigmoid is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

#define INLINE inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call: every helper is inlined

namespace {

// W float lanes; Unaligned is the same for an address that is only 4-byte aligned.
template <int W>
using Lanes __attribute__((vector_size(W * 4))) = float;
template <int W>
using Ints __attribute__((vector_size(W * 4))) = int32_t;
template <int W>
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
};

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}
template <int W>
INLINE void store(float* p, const Lanes<W>& v) {
  *reinterpret_cast<typename Unaligned<W>::type*>(p) = v;
}

// The first `count` < W lanes only; the others are read as 0.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count) {
  Lanes<W> v{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}

// 2^v for v <= 0, clamped at -125. Adding 1.5 * 2^23 rounds v to an integer n, left in the low bits; a polynomial is
// 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> v = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

constexpr int kChosen = 8;

// 1 / (1 + e^-x). With h = e^-|x| it is 1 / (1 + h), for negative x times h: nothing overflows.
template <int W>
INLINE Lanes<W> sigmoid(const Lanes<W>& x) {
  const Lanes<W> h = power_of_two<W>((Lanes<W>)((Ints<W>)x & 0x7fffffff) * -1.44269504f);
  return (x > 0.0f ? Lanes<W>{} + 1.0f : h) / (h + 1.0f);
}

// Puts `value` where it belongs among the best, which are in falling order; the last one drops out.
INLINE void insert(float* best, int* ids, float value, int id) {
  int at = kChosen - 1;
  for (; at > 0 && best[at - 1] < value; --at) {  // no mutate: equal ones may stand in either order
    best[at] = best[at - 1];
    ids[at] = ids[at - 1];
  }
  best[at] = value;
  ids[at] = id;
}

// `scores` and `biased`: rows of scratch with room for a whole vector at the end.
template <int W>
INLINE void route(float* weights, int32_t* ids, const float* logits, const float* bias, int64_t tokens,
                  int64_t experts, float scaling, float* scores, float* biased) {
  for (int64_t token = 0; token < tokens; ++token, logits += experts, weights += kChosen, ids += kChosen) {
    for (int64_t e = 0; e < experts; e += W) {  // no mutate: a vector with nothing in it makes scores not read
      const bool whole = e + W <= experts;  // no mutate: a partial load of a whole vector is the same
      const Lanes<W> s = sigmoid<W>(whole ? load<W>(logits + e) : load_some<W>(logits + e, experts - e));
      store<W>(scores + e, s);
      store<W>(biased + e, s + (whole ? load<W>(bias + e) : load_some<W>(bias + e, experts - e)));
    }
    float best[kChosen];
    int chosen[kChosen] = {};
    for (float& value : best) value = -INFINITY;
    for (int64_t e = 0; e < experts; ++e) {
      if (biased[e] > best[kChosen - 1]) insert(best, chosen, biased[e], static_cast<int>(e));
    }
    float sum = 1e-20f;
    for (const int id : chosen) sum += scores[id];
    for (int j = 0; j < kChosen; ++j) {
      ids[j] = chosen[j];
      weights[j] = scaling * (scores[chosen[j]] / sum);
    }
  }
}

using Route = void (*)(float*, int32_t*, const float*, const float*, int64_t, int64_t, float, float*, float*);
#define DEFINE_ROUTE(NAME, W)                                                                                     \
  void NAME(float* weights, int32_t* ids, const float* logits, const float* bias, int64_t tokens,                 \
            int64_t experts, float scaling, float* scores, float* biased) {                                       \
    route<W>(weights, ids, logits, bias, tokens, experts, scaling, scores, biased);                               \
  }

DEFINE_ROUTE(route_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_ROUTE(route_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_ROUTE(route_avx512, 16)
#endif

Route pick_route() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return route_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return route_avx2;
#endif
  return route_baseline;
}

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
  STD_TORCH_CHECK(experts >= kChosen && experts <= INT32_MAX, "moe_gating: expected at least 8 experts");
  STD_TORCH_CHECK(weights.scalar_type() == ScalarType::Float && logits.scalar_type() == ScalarType::Float &&
                      bias.scalar_type() == ScalarType::Float && ids.scalar_type() == ScalarType::Int,
                  "moe_gating: expected float32, and int32 ids");
  for (const auto* t : {&weights, &ids, &logits, &bias}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "moe_gating: expected contiguous CPU tensors");
  }
  const int64_t stride = experts + 16;  // and the widest vector
  const auto scratch = std::make_unique<float[]>(static_cast<size_t>(2 * stride));
  static const Route run = pick_route();
  run(static_cast<float*>(weights.mutable_data_ptr()), static_cast<int32_t*>(ids.mutable_data_ptr()),
      static_cast<const float*>(logits.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()), tokens,
      experts, static_cast<float>(scaling), scratch.get(), scratch.get() + stride);
}
