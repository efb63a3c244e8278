// A linear layer with bias and GELU (tanh form) on the CPU, float32.
//
// The product is in panels.h; bias and GELU are applied to the rows of a tile as soon as its sums are stored, while
// they are in the L1 cache. tanh is never formed: y / 2 * (1 + tanh(u)) is y / (1 + e^(-2u)), one exponential and one
// division.
// Compiled for AVX-512 (12 x 2 vectors of sums in 24 of 32 registers), AVX2 (6 x 2 in 12 of 16) and the baseline; cpuid
// picks one.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "panels.h"

namespace {

using panels::Lanes;
template <int W>
using Ints __attribute__((vector_size(W * 4))) = int32_t;

// 2^v, clamped to 2^-125 and 2^125. Adding 1.5 * 2^23 rounds v to an integer n, left in the low bits; a polynomial is
// 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> low = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> v = low > 125.0f ? Lanes<W>{} + 125.0f : low;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

// -2 u / ln 2 = y * (a + b * y^2) with a = -2 sqrt(2 / pi) / ln 2 and b = 0.044715 a.
template <int W>
INLINE Lanes<W> gelu(const Lanes<W>& y) {
  return y / (1.0f + power_of_two<W>(y * (y * y * -0.102943240f - 2.30220820f)));
}

template <int W, int ROWS>
INLINE void linear_gelu(float* out, const float* x, const float* weight, const float* bias, int64_t m, int64_t n,
                        int64_t k) {
  // Panels beyond the last column read the bias there.
  std::vector<float> shifts(static_cast<size_t>(n + 2 * W));
  std::copy_n(bias, n, shifts.data());
  const auto finish = [&](float* row, int64_t j) __attribute__((always_inline)) {
    for (int64_t c = 0; c < 2 * W; c += W) {  // no mutate: there are two vectors
      panels::store<W>(row + c, gelu<W>(panels::load<W>(row + c) + panels::load<W>(shifts.data() + j + c)));
    }
  };
  panels::product<W, ROWS>(out, x, weight, m, n, k, finish);
}

using Linear = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_LINEAR(NAME, W, ROWS)                                                                                 \
  void NAME(float* out, const float* x, const float* weight, const float* bias, int64_t m, int64_t n, int64_t k) {   \
    linear_gelu<W, ROWS>(out, x, weight, bias, m, n, k);                                                             \
  }

DEFINE_LINEAR(linear_baseline, 4, 6)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_LINEAR(linear_avx2, 8, 6)
__attribute__((target("avx512f"))) DEFINE_LINEAR(linear_avx512, 16, 12)
#endif

Linear pick_linear() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return linear_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return linear_avx2;
#endif
  return linear_baseline;
}

}  // namespace

void gemm_bias_gelu(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                    const torch::stable::Tensor& weight, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && x.dim() == 2 && weight.dim() == 2 && bias.dim() == 1,
                  "gemm_bias_gelu: expected (m, n), (m, k), (n, k) and (n,)");
  const int64_t m = x.size(0), n = weight.size(0), k = x.size(1);
  STD_TORCH_CHECK(weight.size(1) == k && bias.size(0) == n && out.size(0) == m && out.size(1) == n && k > 0,
                  "gemm_bias_gelu: shapes differ");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "gemm_bias_gelu: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "gemm_bias_gelu: expected contiguous CPU tensors");
  }
  static const Linear run = pick_linear();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()), m, n, k);
}
