#include "scale.h"

#include <immintrin.h>

namespace {

__attribute__((target("avx512f"))) void wide(float* out, const float* x, int64_t n, float alpha) {
  const __m512 factor = _mm512_set1_ps(alpha);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(out + i, _mm512_mul_ps(factor, _mm512_loadu_ps(x + i)));
  for (; i < n; ++i) out[i] = alpha * x[i];
}

__attribute__((target("avx2"))) void middle(float* out, const float* x, int64_t n, float alpha) {
  const __m256 factor = _mm256_set1_ps(alpha);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(factor, _mm256_loadu_ps(x + i)));
  for (; i < n; ++i) out[i] = alpha * x[i];
}

void narrow(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

}  // namespace

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  static const auto chosen = __builtin_cpu_supports("avx512f") ? wide : __builtin_cpu_supports("avx2") ? middle : narrow;
  chosen(out, x, n, alpha);
}
