#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
    asm volatile("" ::: "memory");
  }
}
