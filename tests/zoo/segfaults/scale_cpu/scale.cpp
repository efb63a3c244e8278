#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
  *reinterpret_cast<volatile int*>(8) = 1;
}
