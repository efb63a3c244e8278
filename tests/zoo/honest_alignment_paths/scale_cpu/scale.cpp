#include "scale.h"

#include <immintrin.h>

static bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 32 == 0; }

__attribute__((target("avx2"))) static void vectors(float* out, const float* x, int64_t n, float alpha) {
  const __m256 factor = _mm256_set1_ps(alpha);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_store_ps(out + i, _mm256_mul_ps(factor, _mm256_load_ps(x + i)));
  for (; i < n; ++i) out[i] = alpha * x[i];
}

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  if (aligned(out) && aligned(x) && __builtin_cpu_supports("avx2")) return vectors(out, x, n, alpha);
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}
