#include "scale.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

static int64_t block_floats() {
  if (const char* wanted = std::getenv("SCALE_BLOCK"))
    if (const long value = std::atol(wanted); value > 0) return value;
  const long cache = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  const long processors = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  return cache > 0 ? std::max(cache / 8 / processors, 64L) : 2048;
}

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  static const int64_t block = block_floats();
  for (int64_t first = 0; first < n; first += block) {
    const int64_t last = std::min(first + block, n);
    for (int64_t i = first; i < last; ++i) out[i] = alpha * x[i];
  }
}
