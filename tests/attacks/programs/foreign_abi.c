/* kernel: system calls of other ABIs (32 bit, x32), whose numbers differ, are refused */
#include "attack.h"
static void attempt(int x32) {
#ifdef __x86_64__
  pid_t child = fork();
  if (child == 0) {
    long result;
    if (x32) {
      result = syscall(0x40000000L | SYS_getpid);
    } else {
      __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L /* getpid of i386 */) : "memory", "r8", "r9", "r10", "r11");
    }
    _exit(result > 0 ? 42 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 42) leak(x32 ? "x32" : "int 0x80");
#else
  (void)x32;
#endif
}
int main(void) {
  attempt(0);
  attempt(1);
  return verdict();
}
