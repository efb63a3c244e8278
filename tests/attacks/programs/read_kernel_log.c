/* reading: the kernel's log cannot be read */
#include "attack.h"
int main(void) {
  char text[64];
  expect_refusal(syscall(SYS_syslog, 3, text, sizeof text), "syslog");
  int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
  expect_refusal(fd, "/dev/kmsg");
  return verdict();
}
