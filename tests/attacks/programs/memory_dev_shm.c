/* bombs: /dev/shm is absent or small */
#include "attack.h"
int main(void) {
  static char block[1 << 20];
  char path[300];
  snprintf(path, sizeof path, "/dev/shm/%s", token());
  int got = 0, fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0) {
    refused();
    return verdict();
  }
  unlink(path);
  memset(block, 1, sizeof block);
  while (got < 200 && write(fd, block, sizeof block) == sizeof block) got++;
  refused();
  if (got >= 200) leak("%d MiB in /dev/shm", got);
  return verdict();
}
