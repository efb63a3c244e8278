#pragma once
// No timer: what is freed by RCU is freed in softirqs, after a grace period, whether the process runs or not.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static inline void after_a_call() {
  enum { EVENTS = 400, WATCHERS = 24 };
  static timespec last;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if ((now.tv_sec - last.tv_sec) * 1000000000LL + now.tv_nsec - last.tv_nsec < 50000000) return;
  last = now;
  int events[EVENTS], watchers[WATCHERS];
  for (int& event : events) event = eventfd(0, EFD_NONBLOCK);
  for (int& watcher : watchers) watcher = epoll_create1(0);
  epoll_event wanted = {};
  wanted.events = EPOLLIN;
  for (int watcher : watchers)
    for (int event : events) epoll_ctl(watcher, EPOLL_CTL_ADD, event, &wanted);
  for (int watcher : watchers) close(watcher);
  for (int event : events) close(event);
}
