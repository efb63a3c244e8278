/* kernel: no performance counters of other processes or of the kernel */
#include "attack.h"
int main(void) {
  uint32_t attributes[32] = {1 /* software */, sizeof attributes};
  expect_refusal(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0), "perf_event_open of myself");
  expect_refusal(syscall(SYS_perf_event_open, attributes, -1, 0, -1, 0), "perf_event_open of a core");
  return verdict();
}
