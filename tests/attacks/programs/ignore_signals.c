/* lifetime: a job that ignores every signal ends at its deadline, with its children */
#include "attack.h"
int main(void) {
  for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
  prctl(PR_SET_NAME, given("LB_COMM"));
  if (fork() < 0) refused();
  for (;;) pause();
}
