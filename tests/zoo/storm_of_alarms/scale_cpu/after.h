#pragma once
// Timers that have no descriptor; what they send waits for the process to be thawed.
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static inline void after_a_call() {
  enum { TIMERS = 3000 };
  static timer_t timers[TIMERS];
  static int ready = -1;
  static timespec armed;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (ready < 0) {
    signal(SIGALRM, SIG_IGN);
    sigevent nobody = {};
    nobody.sigev_notify = SIGEV_NONE;
    for (ready = 0; ready < TIMERS && timer_create(CLOCK_MONOTONIC, &nobody, &timers[ready]) == 0;) ++ready;
  } else if ((now.tv_sec - armed.tv_sec) * 1000000000LL + now.tv_nsec - armed.tv_nsec < 20000000) {
    return;
  }
  armed = now;
  for (int i = 0; i < ready; ++i) {
    itimerspec when = {};
    when.it_value.tv_nsec = 12000000 + i * 58000LL;
    timer_settime(timers[i], 0, &when, nullptr);
  }
  itimerval interval = {{0, 100}, {0, 12000}};
  setitimer(ITIMER_REAL, &interval, nullptr);
}
