/* mounts: the root directory cannot be exchanged */
#include "attack.h"
int main(void) {
  mkdir("new", 0700);
  mkdir("new/old", 0700);
  expect_refusal(syscall(SYS_pivot_root, "new", "new/old"), "pivot_root");
  return verdict();
}
