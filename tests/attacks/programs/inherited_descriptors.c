/* descriptors: a job has standard input and output and the channel, and nothing else is open */
#include "attack.h"
int main(void) {
  int channel = atoi(given("LB_CHANNEL"));
  for (int fd = 0; fd < 4096; fd++) {
    char path[64], to[256];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(path, to, sizeof to - 1);
    if (size < 0) continue;
    to[size] = 0;
    if (fd > 2 && fd != channel) leak("descriptor %d is %s", fd, to);
    if (fd == 0 && strcmp(to, "/dev/null")) leak("standard input is %s", to);
    if ((fd == 1 || fd == 2) && strncmp(to, "pipe:", 5)) leak("output %d is %s", fd, to);
  }
  return verdict();
}
