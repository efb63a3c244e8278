// Layer norm and exact GELU on the CPU, float32.
//
// Three sweeps over each row while it sits in the L1 cache: the mean; the squares of the centred values (no
// cancellation, whatever the offset of the row); then scale, shift and GELU in one go. Memory is read once and written
// once, where two PyTorch ops write the normalised tensor and read it back.
// GELU is a fit of the normal tail times one exponential: about 30 vector instructions, no branches.
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

// Four short chains of adds, not one long one: short rows wait for this.
template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  float part[4] = {v[0], v[1], v[2], v[3]};
  for (int lane = 4; lane < W; ++lane) part[lane % 4] += v[lane];  // no mutate: past a vector's end is undefined, and dropped
  return (part[0] + part[1]) + (part[2] + part[3]);
}

// Sum over the row of (x - centre)^Power, Power 1 or 2.
template <int W, int Power>
INLINE float row_sum(const float* x, int64_t cols, float centre) {
  Lanes<W> sum0{}, sum1{}, sum2{}, sum3{};
  int64_t j = 0;
  for (; j + 4 * W <= cols; j += 4 * W) {
    const Lanes<W> v0 = load<W>(x + j) - centre, v1 = load<W>(x + j + W) - centre;
    const Lanes<W> v2 = load<W>(x + j + 2 * W) - centre, v3 = load<W>(x + j + 3 * W) - centre;
    sum0 += Power == 1 ? v0 : v0 * v0;
    sum1 += Power == 1 ? v1 : v1 * v1;
    sum2 += Power == 1 ? v2 : v2 * v2;
    sum3 += Power == 1 ? v3 : v3 * v3;
  }
  sum0 = (sum0 + sum1) + (sum2 + sum3);
  float total = sum_lanes<W>(sum0);
  for (; j < cols; ++j) total += Power == 1 ? x[j] - centre : (x[j] - centre) * (x[j] - centre);
  return total;
}

template <int W>
INLINE void norm_gelu_rows(float* out, const float* x, const float* weight, const float* bias, int64_t rows,
                           int64_t cols, double eps) {
  const float inv_cols = 1.0f / static_cast<float>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    // The first element as a provisional centre keeps the float32 sum accurate for rows far from zero.
    const float mean = x[0] + row_sum<W, 1>(x, cols, x[0]) * inv_cols;
    const float variance = row_sum<W, 2>(x, cols, mean) * inv_cols;
    const float scale = 1.0f / std::sqrt(variance + static_cast<float>(eps));
    int64_t j = 0;
    for (; j + W <= cols; j += W) {
      __builtin_prefetch(x + cols + j);  // the next row comes in while this one is being computed
      const Lanes<W> v = (load<W>(x + j) - mean) * scale * load<W>(weight + j) + load<W>(bias + j);
      store<W>(out + j, gelu<W>(v));
    }
    if (j < cols) {
      const int64_t rest = cols - j;
      const Lanes<W> v = (load_some<W>(x + j, rest) - mean) * scale * load_some<W>(weight + j, rest);
      store_some<W>(out + j, gelu<W>(v + load_some<W>(bias + j, rest)), rest);
    }
  }
}

using Rows = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, double);
#define DEFINE_ROWS(NAME, W)                                                                                \
  void NAME(float* out, const float* x, const float* weight, const float* bias, int64_t rows, int64_t cols, \
            double eps) {                                                                                   \
    norm_gelu_rows<W>(out, x, weight, bias, rows, cols, eps);                                               \
  }

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

void layer_norm_gelu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& weight, const torch::stable::Tensor& bias, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && weight.dim() == 1 && bias.dim() == 1,
                  "layer_norm_gelu: expected (rows, cols) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols && weight.size(0) == cols && bias.size(0) == cols,
                  "layer_norm_gelu: shapes differ");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "layer_norm_gelu: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "layer_norm_gelu: expected contiguous CPU tensors");
  }
  if (cols == 0) return;
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()), rows, cols,
      eps);
}
