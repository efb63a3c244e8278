/* descriptors: no terminal of the launcher can be opened or typed into */
#include "attack.h"
int main(void) {
  char byte = 'x';
  expect_refusal(open("/dev/tty", O_RDWR | O_NOCTTY), "opened /dev/tty");
  for (int fd = 0; fd < 3; fd++) expect_refusal(ioctl(fd, TIOCSTI, &byte), "typed with TIOCSTI");
  return verdict();
}
