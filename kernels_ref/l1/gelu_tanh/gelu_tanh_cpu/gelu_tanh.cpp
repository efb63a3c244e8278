// GELU, tanh approximation, on the CPU, float32.
//
// (1 + tanh(u)) / 2 is 1 / (1 + e^(-2u)): one exponential and one division, and no cancellation for negative x.
// Four vectors at a time are independent of each other, so their polynomials overlap; loads need no alignment.
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

// x / (1 + 2^t), t = -2 log2(e) sqrt(2 / pi) (x + 0.044715 x^3); 2^t beyond 2^125 counts as infinite, the result as 0.
template <int W>
INLINE Lanes<W> gelu(const Lanes<W>& x) {
  const Lanes<W> t = x * (x * x * -0.102943240f - 2.30220820f);
  const Lanes<W> power = t > 125.0f ? Lanes<W>{} + INFINITY : power_of_two<W>(t);
  return x / (power + 1.0f);
}

template <int W>
INLINE void gelu_all(float* out, const float* x, int64_t count) {
  int64_t j = 0;
  for (; j + 4 * W <= count; j += 4 * W) {  // no mutate: the lines below take what is left
    const Lanes<W> v0 = gelu<W>(load<W>(x + j)), v1 = gelu<W>(load<W>(x + j + W));
    const Lanes<W> v2 = gelu<W>(load<W>(x + j + 2 * W)), v3 = gelu<W>(load<W>(x + j + 3 * W));
    store<W>(out + j, v0);
    store<W>(out + j + W, v1);
    store<W>(out + j + 2 * W, v2);
    store<W>(out + j + 3 * W, v3);
  }
  while (j < count) {
    const int64_t some = count - j < W ? count - j : W;  // no mutate: a whole vector may be taken as a part
    store_some<W>(out + j, gelu<W>(load_some<W>(x + j, some)), some);
    j += some;
  }
}

using All = void (*)(float*, const float*, int64_t);
#define DEFINE_ALL(NAME, W) \
  void NAME(float* out, const float* x, int64_t count) { gelu_all<W>(out, x, count); }

DEFINE_ALL(all_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_ALL(all_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_ALL(all_avx512, 16)
#endif

All pick() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return all_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return all_avx2;
#endif
  return all_baseline;
}

}  // namespace

void gelu_tanh(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 1 && out.dim() == 1 && x.size(0) == out.size(0), "gelu_tanh: expected (count,) twice");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "gelu_tanh: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "gelu_tanh: expected contiguous CPU tensors");
  }
  static const All run = pick();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), x.size(0));
}
