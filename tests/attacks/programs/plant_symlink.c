/* collector: a symbolic link to a file or directory outside is not followed */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  return symlink(given("LB_SECRET"), "out/secret") | symlink(given("LB_PUBLIC"), "out/public") |
         symlink("/etc", "out/etc") | symlink("/proc/self/environ", "out/environ") |
         symlink("../../../../../../etc/passwd", "out/passwd") | symlink("self", "out/self");
}
