/* bombs: CPU time is limited */
#include "attack.h"
int main(void) {
  struct timespec used;
  signal(SIGXCPU, SIG_IGN);
  do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  while (used.tv_sec < 6); /* the suite allows 1 s, and a second or two until somebody looks */
  leak("used 6 s of a core");
  return verdict();
}
