/* writing: what is written to an input does not reach the original */
#include "attack.h"
int main(void) {
  chmod("given", 0600);
  int fd = open("given", O_WRONLY | O_TRUNC);
  if (fd >= 0 && write(fd, "theirs", 6) == 6) leak("changed our copy");
  return verdict();
}
