// Grouped matrix product of a mixture of experts on the CPU, float32: one product for every expert that has rows.
//
// The work is in panels.h; here it is compiled for AVX-512 (12 x 2 vectors of sums in 24 of 32 registers), AVX2
// (6 x 2 in 12 of 16) and the baseline, and cpuid picks one.

#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "panels.h"

namespace {

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

void grouped_gemm(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& weights, const torch::stable::Tensor& offsets) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && x.dim() == 2 && weights.dim() == 3 && offsets.dim() == 1,
                  "grouped_gemm: expected (tokens, n), (tokens, k), (experts, n, k) and (experts + 1,)");
  const int64_t tokens = x.size(0), experts = weights.size(0), n = weights.size(1), k = x.size(1);
  STD_TORCH_CHECK(weights.size(2) == k && offsets.size(0) == experts + 1 && out.size(0) == tokens &&
                      out.size(1) == n && k > 0,
                  "grouped_gemm: shapes differ");
  STD_TORCH_CHECK(offsets.scalar_type() == ScalarType::Long, "grouped_gemm: expected int64 offsets");
  for (const auto* t : {&out, &x, &weights}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "grouped_gemm: the CPU kernel takes float32");
  }
  for (const auto* t : {&out, &x, &weights, &offsets}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "grouped_gemm: expected contiguous CPU tensors");
  }
  static const Product run = pick_product();
  auto* to = static_cast<float*>(out.mutable_data_ptr());
  const auto* from = static_cast<const float*>(x.const_data_ptr());
  const auto* weight = static_cast<const float*>(weights.const_data_ptr());
  const auto* starts = static_cast<const int64_t*>(offsets.const_data_ptr());
  for (int64_t expert = 0; expert < experts; ++expert) {
    const int64_t first = starts[expert], rows = starts[expert + 1] - first;
    if (rows > 0) run(to + first * n, from + first * k, weight + expert * n * k, rows, n, k);
  }
}
