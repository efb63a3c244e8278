/* Takes memory until somebody says no, and claims a leak when nobody did for two seconds. */
#ifndef HOARD_H
#define HOARD_H
#include "attack.h"
#define HOARD_BYTES ((int64_t)960 << 20) /* the suite's jobs may use 512 MiB */

/* A watchdog looks only now and then, and later on a busy machine. */
static inline void wait_for_watchdog(void) {
  struct timespec seconds = {2, 0};
  nanosleep(&seconds, NULL);
}

static inline int hoarded(void) {
  wait_for_watchdog();
  leak("%d MiB taken and kept", (int)(HOARD_BYTES >> 20));
  return verdict();
}

static inline int hoard(int flags, int fd) {
  const int64_t step = 16 << 20;
  for (int64_t got = 0; got < HOARD_BYTES; got += step) {
    if (fd >= 0 && ftruncate(fd, got + step)) {
      refused();
      return verdict();
    }
    char *memory = mmap(NULL, (size_t)step, PROT_READ | PROT_WRITE, flags, fd, fd >= 0 ? got : 0);
    if (memory == MAP_FAILED) {
      refused();
      return verdict();
    }
    memset(memory, 1, (size_t)step);
  }
  return hoarded();
}
#endif
