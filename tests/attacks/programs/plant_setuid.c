/* collector: a setuid file loses that mode, and its copy belongs to us */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  int fd = open("out/program", O_WRONLY | O_CREAT, 0700);
  if (write(fd, "#!/bin/sh\n", 10) < 0) return 1;
  return fchmod(fd, 06755) && errno != EPERM;
}
