/* kernel: userfaultfd is closed (it stretches races in the kernel) */
#include "attack.h"
int main(void) {
  expect_refusal(syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */), "userfaultfd");
  return verdict();
}
