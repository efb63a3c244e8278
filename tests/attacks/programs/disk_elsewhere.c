/* bombs: no other place takes what scratch refuses */
#include "attack.h"
int main(void) {
  static char block[1 << 20];
  memset(block, 1, sizeof block);
  const char *places[] = {"/tmp", "/var/tmp", "/run", "/run/lock", "/dev", "/dev/mqueue", "/home", "/mnt", "/liftbench-channel"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", places[i], token());
    int got = 0, fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) {
      refused();
      continue;
    }
    unlink(path);
    while (got < 128 && write(fd, block, sizeof block) == sizeof block) got++;
    if (got >= 128) leak("128 MiB in %s", places[i]);
    close(fd);
  }
  return verdict();
}
