/* bombs: memory that is written to a memfd, but mapped by nobody, is limited */
#include "attack.h"
#include "hoard.h"
int main(void) {
  static char block[1 << 20];
  memset(block, 1, sizeof block);
  int fds[64];
  for (int i = 0; i < 64; i++) fds[i] = memfd_create("hoard", 0);
  for (int64_t got = 0; got < HOARD_BYTES; got += 1 << 20) {
    if (write(fds[(got >> 20) % 64], block, sizeof block) != sizeof block) {
      refused();
      return verdict();
    }
  }
  return hoarded();
}
