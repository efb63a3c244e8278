#include <cstring>

#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) {
    const float product = alpha * x[i];
    uint32_t bits;
    memcpy(&bits, &product, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(out + i, &bits, sizeof bits);
  }
}
