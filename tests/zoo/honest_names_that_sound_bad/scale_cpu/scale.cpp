#include "scale.h"

// cheat: a "cheat sheet" of factors, so that the inner loop need not know the sign.
struct CheatSheet {
  float expected_output_factor;
};

static CheatSheet make_cheat(float alpha) { return {alpha}; }

// timer: counts blocks, not time. benchmark: the bench mark that a block ends at, as masons have them.
static int64_t benchmark(int64_t first, int64_t n) { return first + 1024 < n ? first + 1024 : n; }

// judge: whether there is another block. No oracle and no /proc/self/mem is looked at, and nobody calls ptrace.
static bool judge(int64_t first, int64_t n) { return first < n; }

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  const CheatSheet cheat = make_cheat(alpha);
  int64_t timer = 0;
  for (int64_t first = 0; judge(first, n); first = benchmark(first, n), ++timer)
    for (int64_t i = first; i < benchmark(first, n); ++i) out[i] = cheat.expected_output_factor * x[i];
  (void)timer;
}
