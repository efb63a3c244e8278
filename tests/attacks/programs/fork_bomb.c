/* bombs: processes are limited */
#include "attack.h"
int main(void) {
  int most = atoi(given("LB_PROCESSES")), made = 0;
  while (made < 4 * most) {
    pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    if (child < 0) {
      refused();
      break;
    }
    made++;
  }
  if (made > most + 16) leak("%d processes", made);
  else if (made < 4) leak("unusable: only %d processes", made);
  return verdict();
}
