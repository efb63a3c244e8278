// Clamped SwiGLU of interleaved columns on the CPU, float32.
//
// Columns are taken in pairs (gate, linear), and rows follow each other without a gap, so the whole tensor is one list
// of pairs. Two loads bring 2 W values; the lanes with even and with odd numbers are picked apart, and W results are
// stored. One exponential and one division each.
// Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

#include <cmath>
#include <cstdint>
#include <cstring>

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
template <int W>
INLINE void store_some(float* p, const Lanes<W>& v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

// 2^v for v clamped to [-125, 125]. Adding 1.5 * 2^23 rounds v to an integer n, left in the low bits; a polynomial is
// 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  Lanes<W> v = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  v = v > 125.0f ? Lanes<W>{} + 125.0f : v;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

// Gates (First = 0) or linear parts (First = 1) of the W pairs in two vectors.
template <int W, int First>
INLINE Lanes<W> every_second(const Lanes<W>& low, const Lanes<W>& high) {
  Ints<W> from{};
  for (int lane = 0; lane < W; ++lane) from[lane] = 2 * lane + First;
  return __builtin_shuffle(low, high, from);
}

template <int W>
INLINE Lanes<W> activate(const Lanes<W>& gate, const Lanes<W>& linear, float alpha, float limit) {
  const Lanes<W> top = Lanes<W>{} + limit;
  const Lanes<W> g = gate > top ? top : gate;
  Lanes<W> l = linear > top ? top : linear;
  l = l < -top ? -top : l;
  // sigmoid(alpha g) = 1 / (1 + 2^t); 2^t beyond 2^125 counts as infinite.
  const Lanes<W> t = g * (alpha * -1.44269504f);
  const Lanes<W> power = t > 125.0f ? Lanes<W>{} + INFINITY : power_of_two<W>(t);
  return g / (power + 1.0f) * (l + 1.0f);
}

template <int W>
INLINE void activate_pairs(float* out, const float* x, int64_t count, float alpha, float limit) {
  int64_t j = 0;
  for (; j + W <= count; j += W) {  // no mutate: the lines below take what is left
    const Lanes<W> low = load<W>(x + 2 * j), high = load<W>(x + 2 * j + W);
    store<W>(out + j, activate<W>(every_second<W, 0>(low, high), every_second<W, 1>(low, high), alpha, limit));
  }
  if (j < count) {
    const int64_t rest = count - j;
    float both[2 * W] = {};
    std::memcpy(both, x + 2 * j, static_cast<size_t>(2 * rest) * sizeof(float));
    const Lanes<W> low = load<W>(both), high = load<W>(both + W);
    const Lanes<W> result = activate<W>(every_second<W, 0>(low, high), every_second<W, 1>(low, high), alpha, limit);
    store_some<W>(out + j, result, rest);
  }
}

using Pairs = void (*)(float*, const float*, int64_t, float, float);
#define DEFINE_PAIRS(NAME, W)                                                      \
  void NAME(float* out, const float* x, int64_t count, float alpha, float limit) { \
    activate_pairs<W>(out, x, count, alpha, limit);                                \
  }

DEFINE_PAIRS(pairs_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_PAIRS(pairs_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_PAIRS(pairs_avx512, 16)
#endif

Pairs pick_pairs() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return pairs_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return pairs_avx2;
#endif
  return pairs_baseline;
}

}  // namespace

void swiglu_clamped(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha, double limit) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "swiglu_clamped: expected (rows, cols) and (rows, 2 * cols)");
  const int64_t rows = out.size(0), cols = out.size(1);
  STD_TORCH_CHECK(x.size(0) == rows && x.size(1) == 2 * cols, "swiglu_clamped: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "swiglu_clamped: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "swiglu_clamped: expected contiguous CPU tensors");
  }
  static const Pairs run = pick_pairs();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), rows * cols,
      static_cast<float>(alpha), static_cast<float>(limit));
}
