/* bombs: open descriptors are limited */
#include "attack.h"
int main(void) {
  int got = 0;
  while (got < 70000 && open("/dev/null", O_RDONLY) >= 0) got++;
  refused();
  if (got > 4096) leak("%d descriptors", got);
  return verdict();
}
