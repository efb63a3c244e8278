/* namespaces: no user namespace by clone(2) or clone3(2) */
#include "attack.h"
static int nothing(void *unused) { return unused != NULL; }
int main(void) {
  static char stack[1 << 16] __attribute__((aligned(16)));
  int child = clone(nothing, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, NULL);
  expect_refusal(child, "clone(CLONE_NEWUSER)");
  if (child > 0) waitpid(child, NULL, 0);
  uint64_t arguments[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0};
  long made = syscall(SYS_clone3, arguments, sizeof arguments);
  if (made == 0) _exit(0);
  expect_refusal(made, "clone3(CLONE_NEWUSER)");
  if (made > 0) waitpid((pid_t)made, NULL, 0);
  return verdict();
}
