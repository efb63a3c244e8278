// GELU-gated activation on the CPU, float32, exact (erf) GELU.
//
// One sweep: both halves of a row are read once and the product is written once, with no temporary for gelu(gate).
// The error function is never formed: a fit of the normal tail times one exponential costs about 25 vector
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

// e^v for -87 <= v <= 0 (clamped below): 2^n e^r with |r| <= ln(2)/2 and the Taylor series to r^6 (1.2e-7 relative).
// Adding 1.5 * 2^23 rounds to the integer n and leaves it in the low bits, ready to become an exponent.
template <int W>
INLINE Lanes<W> exponential(const Lanes<W>& x) {
  const Lanes<W> v = x < -87.0f ? Lanes<W>{} - 87.0f : x;
  const Lanes<W> shifted = v * 1.44269504f + 12582912.0f;
  const Lanes<W> n = shifted - 12582912.0f;
  const Lanes<W> r = (v - n * 0.693359375f) + n * 2.12194440e-4f;  // ln(2) in two parts
  Lanes<W> p = r * (1.0f / 720) + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * (Lanes<W>)(((Ints<W>)shifted + 127) << 23);
}

// x times the normal distribution function. With a = |x| the smaller tail is h = e^(-a*a/2) * P(t), t = 1 / (1 + p a):
// P is a least-squares fit of degree 8 without constant term, weighted to 1.6e-7 relative error on 0 <= a <= 13.5.
template <int W>
INLINE Lanes<W> gelu(const Lanes<W>& x) {
  const Lanes<W> a = x < 0.0f ? -x : x;
  const Lanes<W> t = 1.0f / (a * 0.23f + 1.0f);
  Lanes<W> p = t * -0.0734344464f + 0.266896820f;
  p = p * t - 0.231439128f;
  p = p * t + 0.250127741f;
  p = p * t + 0.00123923863f;
  p = p * t + 0.105453710f;
  p = p * t + 0.0892567587f;
  p = p * t + 0.0918993837f;
  const Lanes<W> h = p * t * exponential<W>(a * a * -0.5f);
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
