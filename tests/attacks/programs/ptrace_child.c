/* processes: tracing is closed altogether, even of one's own children */
#include "attack.h"
#include <sys/ptrace.h>
int main(void) {
  expect_refusal(ptrace(PTRACE_TRACEME, 0, 0, 0), "PTRACE_TRACEME");
  return verdict();
}
