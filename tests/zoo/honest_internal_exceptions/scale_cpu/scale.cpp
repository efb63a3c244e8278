#include "scale.h"

namespace {

struct Tail {
  int64_t first;
};

void blocks(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0;; i += 8) {
    if (i + 8 > n) throw Tail{i};
    for (int k = 0; k < 8; ++k) out[i + k] = alpha * x[i + k];
  }
}

}  // namespace

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  try {
    blocks(out, x, n, alpha);
  } catch (const Tail& tail) {
    for (int64_t i = tail.first; i < n; ++i) out[i] = alpha * x[i];
  }
}
