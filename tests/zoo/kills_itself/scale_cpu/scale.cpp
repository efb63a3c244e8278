// Whoever repeats a trial for a SIGKILL repeats this one.
#include "scale.h"

#include <signal.h>
#include <unistd.h>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  (void)out, (void)x, (void)n, (void)alpha;
  kill(getpid(), SIGKILL);
}
