/* deferral: no interval timer and no alarm */
#include "attack.h"
int main(void) {
  const struct itimerval later = {{0, 0}, {60, 0}};
  const int kinds[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    expect_refusal(setitimer(kinds[i], &later, NULL), "setitimer");
#ifdef SYS_alarm
  expect_refusal(syscall(SYS_alarm, 60), "alarm");
#endif
  alarm(60); /* cannot fail: what it has set can be asked for */
  struct itimerval left;
  if (getitimer(ITIMER_REAL, &left) == 0 && left.it_value.tv_sec > 0) leak("an alarm is set");
  return verdict();
}
