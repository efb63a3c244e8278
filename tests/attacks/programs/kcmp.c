/* processes: processes cannot be compared (kcmp tells kernel addresses apart) */
#include "attack.h"
int main(void) {
  expect_refusal(syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0), "kcmp of myself");
  expect_refusal(syscall(SYS_kcmp, getpid(), victim(), 1, 0, 0), "kcmp of the victim");
  return verdict();
}
