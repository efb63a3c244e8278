// GELU-gated activation on the CPU, float32, exact (erf) GELU.
//
// One sweep: both halves of a row are read once and the product is written once, with no temporary for gelu(gate).
// The error function is never formed: a fit of the normal tail times one exponential costs about 30 vector
// instructions, has no branches, and keeps its relative accuracy where 1 + erf would cancel.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

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

// The first `count` < W lanes only; the others are read as `fill`.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count, float fill = 0.0f) {
  Lanes<W> v = fill - Lanes<W>{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}
template <int W>
INLINE void store_some(float* p, const Lanes<W>& v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
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

// x times the normal distribution function. With a = |x| the smaller tail is h = e^(-a*a/2) * P(t), t = 1 / (1 + p a):
// P is a minimax fit of degree 7 without constant term, 9e-7 relative error on 0 <= a <= 13.2.
template <int W>
INLINE Lanes<W> gelu(const Lanes<W>& x) {
  const Lanes<W> a = (Lanes<W>)((Ints<W>)x & 0x7fffffff);
  const Lanes<W> t = 1.0f / (a * 0.26f + 1.0f);
  Lanes<W> p = t * -0.0727921634f + 0.228662103f;
  p = p * t - 0.106472906f;
  p = p * t + 0.16682537f;
  p = p * t + 0.0729945123f;
  p = p * t + 0.107277406f;
  p = p * t + 0.103506117f;
  const Lanes<W> h = p * t * power_of_two<W>(a * a * -0.721347520f);
  return (x > 0.0f ? x : Lanes<W>{}) - a * h;
}

template <int W>
INLINE void gate_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += 2 * cols, out += cols) {
    const float* gate = x + cols;
    const float* value = x;
    int64_t j = 0;
    for (; j + W <= cols; j += W) store<W>(out + j, gelu<W>(load<W>(gate + j)) * load<W>(value + j));
    if (j < cols) {
      const int64_t rest = cols - j;
      store_some<W>(out + j, gelu<W>(load_some<W>(gate + j, rest)) * load_some<W>(value + j, rest), rest);
    }
  }
}

using Rows = void (*)(float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W) \
  void NAME(float* out, const float* x, int64_t rows, int64_t cols) { gate_rows<W>(out, x, rows, cols); }

DEFINE_ROWS(rows_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_ROWS(rows_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_ROWS(rows_avx512, 16)
#endif

Rows pick_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return rows_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return rows_avx2;
#endif
  return rows_baseline;
}

}  // namespace

void geglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "geglu: expected (rows, cols) and (rows, 2 * cols)");
  const int64_t rows = out.size(0), cols = out.size(1);
  STD_TORCH_CHECK(x.size(0) == rows && x.size(1) == 2 * cols, "geglu: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "geglu: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "geglu: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), rows, cols);
}
