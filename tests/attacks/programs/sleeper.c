/* none: (helper) another trial, which waits */
#include "attack.h"
int main(void) {
  dprintf(1, "here\n");
  for (;;) pause();
}
