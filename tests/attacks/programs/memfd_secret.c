/* kernel: no memory that the kernel itself cannot see */
#include "attack.h"
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
int main(void) {
  expect_refusal(syscall(SYS_memfd_secret, 0), "memfd_secret");
  return verdict();
}
