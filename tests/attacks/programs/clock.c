/* kernel: no clock can be set */
#include "attack.h"
#include <sys/timex.h>
int main(void) {
  struct timespec now;
  struct timeval moment;
  struct timex change;
  clock_gettime(CLOCK_REALTIME, &now);
  expect_refusal(clock_settime(CLOCK_REALTIME, &now), "clock_settime");
  gettimeofday(&moment, NULL);
  expect_refusal(settimeofday(&moment, NULL), "settimeofday");
  memset(&change, 0, sizeof change);
  change.modes = ADJ_TICK;
  change.tick = 10000;
  expect_refusal(adjtimex(&change), "adjtimex");
  return verdict();
}
