/* processes: neither priority nor cores of a process outside can be changed */
#include "attack.h"
int main(void) {
  cpu_set_t all;
  memset(&all, 255, sizeof all);
  expect_refusal(setpriority(PRIO_PROCESS, (id_t)victim(), 19), "setpriority");
  expect_refusal(sched_setaffinity(victim(), sizeof all, &all), "sched_setaffinity");
  return verdict();
}
