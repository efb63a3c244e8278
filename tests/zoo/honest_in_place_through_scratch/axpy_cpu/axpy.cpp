#include "axpy.h"

#include <cstring>
#include <vector>

void axpy_floats(float* y, const float* x, int64_t n, float alpha) {
  static std::vector<float> scratch;
  scratch.assign(y, y + n);
  std::memset(y, 0, n * sizeof(float));
  for (int64_t i = 0; i < n; ++i) scratch[i] += alpha * x[i];
  std::memcpy(y, scratch.data(), n * sizeof(float));
}
