/* processes: neither priority, cores nor limits of a process outside can be changed */
#include "attack.h"
int main(void) {
  cpu_set_t all;
  struct rlimit limit = {64, 64};
  memset(&all, 255, sizeof all);
  expect_refusal(setpriority(PRIO_PROCESS, (id_t)victim(), 5), "setpriority");
  expect_refusal(sched_setaffinity(victim(), sizeof all, &all), "sched_setaffinity");
  expect_refusal(prlimit(victim(), RLIMIT_NOFILE, &limit, NULL), "prlimit");
  return verdict();
}
