/* bombs: 10 GB of output are neither kept nor waited for */
#include "attack.h"
int main(void) {
  static char block[1 << 16];
  memset(block, 'x', sizeof block);
  for (int64_t sent = 0; sent < 10000000000;) {
    ssize_t done = write(1, block, sizeof block);
    if (done < 0) return 1;
    sent += done;
  }
  return 0;
}
