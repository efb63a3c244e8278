/* privileges: not root, no capabilities, and no way to get either */
#include "attack.h"
#include <grp.h>
#include <linux/capability.h>
int main(void) {
  struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2];
  memset(sets, 0, sizeof sets);
  if (syscall(SYS_capget, &head, sets) == 0 && (sets[0].effective | sets[0].permitted | sets[1].effective))
    leak("capabilities %x %x", sets[0].permitted, sets[1].permitted);
  if (getuid() == 0 || geteuid() == 0 || getgid() == 0) leak("uid %d, gid %d", geteuid(), getegid());
  memset(sets, 255, sizeof sets);
  expect_refusal(syscall(SYS_capset, &head, sets), "capset");
  expect_refusal(setresuid(0, 0, 0), "setresuid 0");
  gid_t root = 0;
  expect_refusal(setgroups(1, &root), "setgroups");
  return verdict();
}
