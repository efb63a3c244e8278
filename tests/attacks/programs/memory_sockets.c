/* bombs: memory in the buffers of sockets is limited */
#include "attack.h"
#include "hoard.h"
int main(void) {
  static char block[1 << 16];
  int64_t got = 0;
  int full = 1;
  for (int child = 0; child < 8 && full; child++) {
    int told[2];
    if (pipe(told)) return unmeasured("no pipe");
    if (fork() == 0) {
      int64_t own = 0;
      int ends[2];
      while (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0)
        for (int end = 0; end < 2; end++) {
          fcntl(ends[end], F_SETFL, O_NONBLOCK);
          for (ssize_t size; (size = write(ends[end], block, sizeof block)) > 0;) own += size;
        }
      if (write(told[1], &own, sizeof own) < 0) _exit(1);
      for (;;) pause();
    }
    int64_t own = 0;
    close(told[1]);
    full = read(told[0], &own, sizeof own) == sizeof own && own > 0;
    if (!full) errno = EPERM, refused();
    close(told[0]);
    got += own;
  }
  if (got < HOARD_BYTES) return verdict();
  wait_for_watchdog();
  if (waitpid(-1, NULL, WNOHANG) != 0) { /* the kernel has killed one of them */
    errno = ENOMEM;
    refused();
    return verdict();
  }
  return hoarded();
}
