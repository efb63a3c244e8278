/* deferral: no POSIX timer, whose signals and ticks come while its process is stopped */
#include "attack.h"
int main(void) {
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_NONE};
  const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID};
  for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
    expect_refusal(timer_create(clocks[i], &event, &timer), "timer_create");
  return verdict();
}
