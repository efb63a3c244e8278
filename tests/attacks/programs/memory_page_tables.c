/* bombs: memory in page tables, for pages that are only read, is limited */
#include "attack.h"
#include "hoard.h"
int main(void) {
  const int64_t reach = (int64_t)8 << 30, step = 2 << 20; /* 4 KiB of tables for each step */
  int64_t got = 0;
  for (int child = 0; child < 40; child++) {
    int told[2];
    if (pipe(told)) return unmeasured("no pipe");
    pid_t made = fork();
    if (made == 0) {
      int64_t own = 0;
      for (int part = 0; part < 4; part++) {
        volatile char *memory = mmap(NULL, (size_t)reach, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) break;
        madvise((void *)memory, (size_t)reach, MADV_NOHUGEPAGE);
        for (int64_t at = 0; at < reach; at += step, own += 4096) (void)memory[at];
      }
      if (write(told[1], &own, sizeof own) < 0) _exit(1);
      for (;;) pause();
    }
    int64_t own = 0;
    close(told[1]);
    if (made < 0 || read(told[0], &own, sizeof own) != sizeof own || own == 0) {
      errno = ENOMEM;
      refused();
      break;
    }
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
