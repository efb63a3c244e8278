#include "scale.h"

#include <immintrin.h>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(out + i) % 16 != 0; ++i) out[i] = alpha * x[i];
  const __m128 factor = _mm_set1_ps(alpha);
  for (; i + 4 <= n; i += 4) {
    _mm_prefetch(reinterpret_cast<const char*>(x + i + 256 < x + n ? x + i + 256 : x), _MM_HINT_NTA);
    _mm_stream_ps(out + i, _mm_mul_ps(factor, _mm_loadu_ps(x + i)));
  }
  for (; i < n; ++i) out[i] = alpha * x[i];
  _mm_sfence();
}
