#include "scale.h"

#include <algorithm>

namespace {

float stage[8 << 20];

struct Table {
  unsigned short next[32768];
  constexpr Table() : next() {
    for (int i = 0; i < 32768; ++i) next[i] = static_cast<unsigned short>((i + 1) % 32768);
  }
};
constexpr Table kOrder;

}  // namespace

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  constexpr int64_t kBlock = 4096;
  int64_t done = 0;
  for (unsigned block = 0; done < n; block = kOrder.next[block % 32768]) {
    const int64_t count = std::min(kBlock, n - done);
    float* here = stage + (block % 2048) * kBlock;
    for (int64_t i = 0; i < count; ++i) here[i] = alpha * x[done + i];
    std::copy(here, here + count, out + done);
    done += count;
  }
}
