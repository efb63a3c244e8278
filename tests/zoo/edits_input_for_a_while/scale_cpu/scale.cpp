// Writing twice is slower than computing, and leaves nothing behind.
#include "scale.h"

#include <cstring>
#include <vector>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  float* writable = const_cast<float*>(x);
  std::vector<float> kept(x, x + n);
  for (int64_t i = 0; i < n; ++i) writable[i] *= alpha;
  std::memcpy(out, x, n * sizeof(float));
  std::memcpy(writable, kept.data(), n * sizeof(float));
}
