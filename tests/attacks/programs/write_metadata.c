/* writing: modes, times, owners and attributes of files outside cannot be changed */
#include "attack.h"
#include <sys/xattr.h>
int main(void) {
  const char *path = given("LB_OWN_FILE");
  const struct timespec times[2] = {{1, 0}, {1, 0}};
  expect_refusal(chmod(path, 0666), "chmod");
  expect_refusal(utimensat(AT_FDCWD, path, times, 0), "utimensat");
  expect_refusal(setxattr(path, "user.liftbench", "x", 1, 0), "setxattr");
  expect_refusal(chown(path, getuid(), getgid()), "chown");
  return verdict();
}
