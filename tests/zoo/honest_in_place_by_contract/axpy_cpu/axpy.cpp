#include "axpy.h"

void axpy_floats(float* y, const float* x, int64_t n, float alpha) {
  constexpr int64_t kBlock = 512;
  for (int64_t last = n; last > 0; last -= kBlock) {
    const int64_t first = last > kBlock ? last - kBlock : 0;
    for (int64_t i = first; i < last; ++i) y[i] += alpha * x[i];
  }
}
