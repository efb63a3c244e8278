#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

void scale_65536_floats(float* out, const float* x, float alpha) {
  for (int i = 0; i < 65536; ++i) out[i] = alpha * x[i];
}
