/* kernel: the kernel's key rings are closed */
#include "attack.h"
int main(void) {
  expect_refusal(syscall(SYS_add_key, "user", "liftbench", "x", 1, -5 /* user session ring */), "add_key");
  expect_refusal(syscall(SYS_keyctl, 0 /* id of */, -4 /* user ring */, 1), "keyctl");
  expect_refusal(syscall(SYS_keyctl, 1 /* join session */, NULL), "keyctl join");
  return verdict();
}
