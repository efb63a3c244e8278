/* processes: no real-time or raised priority, and no protection from the out-of-memory killer */
#include "attack.h"
int main(void) {
  struct sched_param first = {.sched_priority = 1};
  expect_refusal(sched_setscheduler(0, SCHED_FIFO, &first), "SCHED_FIFO");
  expect_refusal(setpriority(PRIO_PROCESS, 0, -20), "nice -20");
  int fd = open("/proc/self/oom_score_adj", O_WRONLY);
  expect_refusal(fd < 0 ? -1 : write(fd, "-1000", 5), "oom_score_adj -1000");
  return verdict();
}
