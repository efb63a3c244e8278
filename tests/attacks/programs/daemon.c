/* lifetime: a daemon (two forks, a session of its own) does not outlive its job */
#include "attack.h"
int main(void) {
  int ready[2];
  if (pipe(ready)) return unmeasured("no pipe");
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      prctl(PR_SET_NAME, given("LB_COMM"));
      signal(SIGHUP, SIG_IGN);
      if (write(ready[1], "x", 1) < 0) _exit(1);
      for (int fd = 0; fd < 1024; fd++) close(fd);
      for (;;) pause();
    }
    _exit(0);
  }
  char byte;
  return read(ready[0], &byte, 1) == 1 ? 0 : 1;
}
