/* deferral: no core-scheduling cookie, which changes how the kernel schedules everybody */
#include "attack.h"
int main(void) {
  expect_refusal(prctl(62 /* PR_SCHED_CORE */, 1 /* create */, 0, 0, 0), "PR_SCHED_CORE");
  return verdict();
}
