/* bombs: CPU time is limited */
#include "attack.h"
int main(void) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  signal(SIGXCPU, SIG_IGN);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while (now.tv_sec - start.tv_sec < 6);
  leak("spun for 6 s");
  return verdict();
}
