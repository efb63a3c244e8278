/* bombs: one file cannot grow beyond its limit, nor pretend to */
#include "attack.h"
int main(void) {
  signal(SIGXFSZ, SIG_IGN);
  int fd = open("large", O_RDWR | O_CREAT, 0600);
  expect_refusal(ftruncate(fd, (off_t)1 << 40), "a file of 1 TiB");
  return verdict();
}
