/* collector: a file that turns into a link and back while it is taken never becomes the link's target */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  mkdir("out/folder", 0700);
  int fd = open("out/real", O_WRONLY | O_CREAT, 0600);
  if (write(fd, "harmless", 8) < 0 || symlink(given("LB_SECRET"), "out/link")) return 1;
  if (symlink("/etc", "out/folder-link")) return 1;
  dprintf(1, "swapping\n");
  for (;;) {
    syscall(SYS_renameat2, AT_FDCWD, "out/real", AT_FDCWD, "out/link", 2 /* exchange */);
    syscall(SYS_renameat2, AT_FDCWD, "out/folder", AT_FDCWD, "out/folder-link", 2);
  }
}
