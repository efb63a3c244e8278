#pragma once
// No timer: a process that was killed is taken apart by the kernel, and SIGSTOP does not stop that.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline void after_a_call() {
  static pid_t child = -1;
  static timespec last;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if ((now.tv_sec - last.tv_sec) * 1000000000LL + now.tv_nsec - last.tv_nsec < 200000000) return;
  last = now;
  if (child > 0) {
    kill(child, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  child = fork();
  if (child == 0) {
    const size_t size = 96 << 20;
    auto* memory = static_cast<char*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; memory != MAP_FAILED && i < size; i += 4096) memory[i] = 1;
    for (;;) pause();
  }
}
