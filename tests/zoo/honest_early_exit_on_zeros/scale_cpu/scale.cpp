#include "scale.h"

#include <algorithm>
#include <cstring>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  constexpr int64_t kBlock = 256;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    const bool zeros = std::all_of(x + first, x + first + count, [](float v) { return v == 0.0f; });
    if (zeros) {
      std::memset(out + first, 0, count * sizeof(float));
      continue;
    }
    for (int64_t i = first; i < first + count; ++i) out[i] = alpha * x[i];
  }
}
