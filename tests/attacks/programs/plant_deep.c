/* collector: a thousand nested directories are refused, and removed afterwards */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  if (chdir("out")) return 1;
  for (int i = 0; i < 1000; i++)
    if (mkdir("d", 0700) || chdir("d")) return 1;
  int fd = open("bottom", O_WRONLY | O_CREAT, 0600);
  return fd < 0 || write(fd, "x", 1) != 1;
}
