/* processes: a process outside can be neither signalled through a pidfd nor robbed of a descriptor */
#include "attack.h"
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
int main(void) {
  int fd = (int)syscall(SYS_pidfd_open, victim(), 0);
  if (fd < 0) refused();
  else {
    expect_refusal(syscall(SYS_pidfd_send_signal, fd, SIGUSR2, NULL, 0), "pidfd_send_signal");
    expect_refusal(syscall(SYS_pidfd_getfd, fd, 1, 0), "pidfd_getfd");
  }
  return verdict();
}
