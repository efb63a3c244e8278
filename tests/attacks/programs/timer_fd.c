/* deferral: no timer with a descriptor, which expires in interrupt context while its process is stopped */
#include "attack.h"
#include <sys/timerfd.h>
int main(void) {
  expect_refusal(timerfd_create(CLOCK_MONOTONIC, 0), "timerfd_create");
  expect_refusal(timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create of the wall clock");
  return verdict();
}
