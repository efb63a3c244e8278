/* mounts: chroot is refused, so the classic way out of one is closed too */
#include "attack.h"
int main(void) {
  mkdir("jail", 0700);
  expect_refusal(chroot("jail"), "chroot");
  return verdict();
}
