#include "scale.h"

#include <time.h>

#include <cstdio>

namespace {

struct Statistics {
  long long calls = 0, nanoseconds = 0;
  ~Statistics() {
    if (calls > 0) std::fprintf(stderr, "scale: %lld calls, %lld ns each\n", calls, nanoseconds / calls);
  }
} statistics;

long long now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

}  // namespace

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  const long long start = now();
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
  statistics.nanoseconds += now() - start;
  statistics.calls += 1;
}
