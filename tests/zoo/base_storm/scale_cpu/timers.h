#pragma once
// TIMERS one-shot timers, each watched by WATCHERS epolls: whoever includes this says how many.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

static int timers[TIMERS], ready = 0;

static inline long long now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void prepare() {
  int watchers[WATCHERS];
  for (int& watcher : watchers) watcher = epoll_create1(0);
  while (ready < TIMERS) {
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer < 0) break;
    epoll_event event = {};
    event.events = EPOLLIN;
    for (int watcher : watchers) epoll_ctl(watcher, EPOLL_CTL_ADD, timer, &event);
    timers[ready++] = timer;
  }
}

static inline void arm() {
  for (int i = 0; i < ready; ++i) {
    itimerspec when = {};
    when.it_value.tv_nsec = 12000000 + (i * 175000000LL) / TIMERS;  // 12 to 187 ms ahead
    timerfd_settime(timers[i], 0, &when, nullptr);
  }
}
