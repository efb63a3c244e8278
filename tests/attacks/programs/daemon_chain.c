/* lifetime: a daemon that forks and dies for ever, to be nobody when it is looked for, does not outlive its job */
#include "attack.h"
int main(void) {
  if (fork() == 0) {
    setsid();
    prctl(PR_SET_NAME, given("LB_COMM"));
    for (int fd = 0; fd < 1024; fd++) close(fd);
    for (;;) {
      pid_t child = fork();
      if (child > 0) _exit(0);
      if (child < 0) usleep(100);
    }
  }
  usleep(50000);
  return 0;
}
