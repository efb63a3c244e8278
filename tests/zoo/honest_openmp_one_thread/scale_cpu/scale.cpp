#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
#pragma omp parallel for simd num_threads(1)
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}
