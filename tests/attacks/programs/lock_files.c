/* writing: files outside can be neither locked against others nor leased */
#include "attack.h"
#include <sys/file.h>
int main(void) {
  const char *paths[] = {given("LB_TOOLKIT"), "/usr/bin/env", "/usr/bin", "/etc/passwd"};
  struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      refused();
      continue;
    }
    expect_refusal(flock(fd, LOCK_EX | LOCK_NB), "flock");
    expect_refusal(fcntl(fd, F_SETLK, &whole), "F_SETLK");
    expect_refusal(fcntl(fd, F_OFD_SETLK, &whole), "F_OFD_SETLK");
    expect_refusal(fcntl(fd, F_SETLEASE, F_RDLCK), "F_SETLEASE");
    close(fd);
  }
  return verdict();
}
