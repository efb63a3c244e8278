/* bombs: the bytes in scratch are limited, over all files */
#include "attack.h"
int main(void) {
  static char block[1 << 20];
  memset(block, 1, sizeof block);
  int most = atoi(given("LB_SCRATCH_MIB")), got = 0, fd = -1;
  while (got < 3 * most) {
    if (got % 16 == 0) {
      char path[64];
      snprintf(path, sizeof path, "big-%d", got);
      if (fd >= 0) close(fd);
      fd = open(path, O_WRONLY | O_CREAT, 0600);
      if (fd < 0) break;
    }
    if (write(fd, block, sizeof block) != sizeof block) break;
    got++;
  }
  refused();
  if (got >= 3 * most) leak("%d MiB", got);
  return verdict();
}
