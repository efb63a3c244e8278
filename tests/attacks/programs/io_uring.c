/* kernel: io_uring is closed (it can do what filters on calls refuse) */
#include "attack.h"
int main(void) {
  char parameters[256];
  memset(parameters, 0, sizeof parameters);
  expect_refusal(syscall(SYS_io_uring_setup, 4, parameters), "io_uring_setup");
  return verdict();
}
