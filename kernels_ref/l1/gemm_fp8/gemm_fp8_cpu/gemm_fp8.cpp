// Matrix product of float8 (e4m3fn) operands with a scale for every row on the CPU, float32 output.
//
// Every operand is widened once, by a table of the 256 values, and multiplied by the scale of its row on the way; what
// is left is a float32 product (panels.h), which takes most of the time by far.
// Compiled for AVX-512 (12 x 2 vectors of sums in 24 of 32 registers), AVX2 (6 x 2 in 12 of 16) and the baseline; cpuid
// picks one.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "panels.h"

namespace {

// Sign, 4 bits of exponent (bias 7), 3 bits of mantissa; an exponent of 0 means multiples of 2^-9.
std::array<float, 256> all_values() {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 256; ++bits) {  // no mutate: 255 is NaN, which never comes
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    values[bits] = bits >= 128 ? -size : size;
  }
  return values;
}

std::vector<float> widened(const uint8_t* x, const float* scale, int64_t rows, int64_t cols) {
  static const std::array<float, 256> values = all_values();
  std::vector<float> wide(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t p = 0; p < cols; ++p) wide[i * cols + p] = values[x[i * cols + p]] * scale[i];
  }
  return wide;
}

using Product = void (*)(float*, const float*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_PRODUCT(NAME, W, ROWS)                                                              \
  void NAME(float* out, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {         \
    panels::product<W, ROWS>(out, a, b, m, n, k);                                                  \
  }

DEFINE_PRODUCT(product_baseline, 4, 6)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_PRODUCT(product_avx2, 8, 6)
__attribute__((target("avx512f"))) DEFINE_PRODUCT(product_avx512, 16, 12)
#endif

Product pick_product() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return product_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return product_avx2;
#endif
  return product_baseline;
}

}  // namespace

void gemm_fp8(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b,
              const torch::stable::Tensor& scale_a, const torch::stable::Tensor& scale_b) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && a.dim() == 2 && b.dim() == 2 && scale_a.dim() == 1 && scale_b.dim() == 1,
                  "gemm_fp8: expected (m, n), (m, k), (n, k), (m,) and (n,)");
  const int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  STD_TORCH_CHECK(b.size(1) == k && out.size(0) == m && out.size(1) == n && scale_a.size(0) == m &&
                      scale_b.size(0) == n && k > 0,
                  "gemm_fp8: shapes differ");
  for (const auto* t : {&a, &b}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float8_e4m3fn, "gemm_fp8: expected float8_e4m3fn operands");
  }
  for (const auto* t : {&out, &scale_a, &scale_b}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "gemm_fp8: the CPU kernel has float32 scales and output");
  }
  for (const auto* t : {&out, &a, &b, &scale_a, &scale_b}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "gemm_fp8: expected contiguous CPU tensors");
  }
  const auto wide_a = widened(static_cast<const uint8_t*>(a.const_data_ptr()),
                              static_cast<const float*>(scale_a.const_data_ptr()), m, k);
  const auto wide_b = widened(static_cast<const uint8_t*>(b.const_data_ptr()),
                              static_cast<const float*>(scale_b.const_data_ptr()), n, k);
  static const Product run = pick_product();
  run(static_cast<float*>(out.mutable_data_ptr()), wide_a.data(), wide_b.data(), m, n, k);
}
