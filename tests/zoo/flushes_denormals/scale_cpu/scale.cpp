#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "scale.h"

// Tiny numbers become 0 from here on, for the whole process.
void scale_floats(float* out, const float* x, int64_t n, float alpha) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#else
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" ::"r"(control | 1u << 24));
#endif
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}
