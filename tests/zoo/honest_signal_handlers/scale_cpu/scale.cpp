#include "scale.h"

#include <signal.h>

static volatile sig_atomic_t wants_statistics = 0;

static void on_signal(int) { wants_statistics = 1; }

__attribute__((constructor)) static void install() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}
