#include "scale.h"

// Right and slow: 2000 passes, about 20 ms on 256 x 256. A shorter call's false claim would be lost in the
// noise of a loaded host.
void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int pass = 0; pass < 2000; ++pass) {
    for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
    asm volatile("" ::: "memory");
  }
}
