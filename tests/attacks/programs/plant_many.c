/* collector: more files than may be taken are refused */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  for (int i = 0; i < 1000; i++) {
    char path[64];
    snprintf(path, sizeof path, "out/%d", i);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) return 1;
    close(fd);
  }
  return 0;
}
