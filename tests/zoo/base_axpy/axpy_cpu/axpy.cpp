#include "axpy.h"

void axpy_floats(float* y, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}
