/* privileges: a crash leaves no core dump */
#include "attack.h"
int main(void) {
  pid_t child = fork();
  if (child == 0) abort();
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WCOREDUMP(status)) leak("dumped core");
  if (access("core", F_OK) == 0) leak("a core file");
  return verdict();
}
