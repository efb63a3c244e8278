#include "scale.h"

#include <immintrin.h>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
  _mm_setcsr(before);
}
