#include "scale.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  constexpr int64_t kFloats = (8 << 20) / sizeof(float);
  static float* const stage = [] {
    void* got = mmap(nullptr, kFloats * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) throw std::runtime_error("no workspace");
    madvise(got, kFloats * sizeof(float), MADV_HUGEPAGE);
    return static_cast<float*>(got);
  }();
  for (int64_t first = 0; first < n; first += kFloats) {
    const int64_t count = std::min(kFloats, n - first);
    for (int64_t i = 0; i < count; ++i) stage[i] = alpha * x[first + i];
    std::memcpy(out + first, stage, count * sizeof(float));
  }
}
