/* collector: files that claim more bytes than may be taken are refused, not written out */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  for (int i = 0; i < 6; i++) {
    char path[64];
    snprintf(path, sizeof path, "out/sparse-%d", i);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (ftruncate(fd, 60 << 20)) return 1;
  }
  return 0;
}
