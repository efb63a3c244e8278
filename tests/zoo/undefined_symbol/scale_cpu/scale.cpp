#include "scale.h"

// Another signature than the one that scale.h declares and the binding calls.
void scale_floats(float* out, const float* x, int64_t n, double alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(alpha * x[i]);
}
