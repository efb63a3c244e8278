/* mounts: nothing can be mounted with the new calls (fsopen, open_tree, move_mount, mount_setattr) */
#include "attack.h"
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
int main(void) {
  expect_refusal(syscall(SYS_fsopen, "tmpfs", 0), "fsopen");
  expect_refusal(syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */), "open_tree");
  uint64_t attributes[4] = {0, 1 /* read-only */, 0, 0};
  expect_refusal(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, attributes, sizeof attributes), "mount_setattr");
  expect_refusal(syscall(SYS_fspick, AT_FDCWD, "/", 0), "fspick");
  return verdict();
}
