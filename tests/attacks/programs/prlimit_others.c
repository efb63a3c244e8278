/* processes: limits of a process outside (no CPU time, no files) cannot be changed */
#include "attack.h"
int main(void) {
  struct rlimit limit = {64, 64};
  expect_refusal(prlimit(victim(), RLIMIT_NOFILE, &limit, NULL), "prlimit");
  return verdict();
}
