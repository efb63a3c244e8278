/* collector: a file with a second name is not taken */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  int fd = open("out/first", O_WRONLY | O_CREAT, 0600);
  if (write(fd, "twice", 5) < 0) return 1;
  if (link(given("LB_SECRET"), "out/secret") && link(given("LB_PUBLIC"), "out/public")) errno = 0;
  return link("out/first", "out/second");
}
