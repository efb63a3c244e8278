// Nothing but SIGKILL ends this.
#include "scale.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  (void)out, (void)x, (void)n, (void)alpha;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  std::thread([] { sigset_t none; sigemptyset(&none); for (;;) pause(); }).detach();
  static int never = 0;
  for (;;) syscall(SYS_futex, &never, FUTEX_WAIT, 0, nullptr, nullptr, 0);
}
