/* privileges: setuid programs give nothing (no_new_privs is set) */
#include "attack.h"
int main(void) {
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) leak("no_new_privs is not set");
  const char *program = given("LB_SETUID");
  if (access(program, X_OK) == 0) {
    pid_t child = fork();
    if (child == 0) {
      execl(program, program, "0", "alone", "whoami_root", NULL);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 42) leak("a planted setuid program ran as root");
  } else {
    refused();
  }
  return verdict();
}
