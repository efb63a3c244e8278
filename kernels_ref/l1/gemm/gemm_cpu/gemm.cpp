// Matrix product with the weights of a linear layer on the CPU, float32.
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

void gemm(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && a.dim() == 2 && b.dim() == 2, "gemm: expected (m, n), (m, k) and (n, k)");
  const int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  STD_TORCH_CHECK(b.size(1) == k && out.size(0) == m && out.size(1) == n && k > 0, "gemm: shapes differ");
  for (const auto* t : {&out, &a, &b}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "gemm: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "gemm: expected contiguous CPU tensors");
  }
  static const Product run = pick_product();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(a.const_data_ptr()),
      static_cast<const float*>(b.const_data_ptr()), m, n, k);
}
