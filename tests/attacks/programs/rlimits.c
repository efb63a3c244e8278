/* privileges: limits cannot be raised again */
#include "attack.h"
int main(void) {
  const __rlimit_resource_t kinds[] = {RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_FSIZE};
  for (int i = 0; i < 3; i++) {
    struct rlimit limit;
    getrlimit(kinds[i], &limit);
    if (limit.rlim_max == RLIM_INFINITY) {
      leak("limit %d is infinite", (int)kinds[i]);
      continue;
    }
    limit.rlim_max += 1;
    limit.rlim_cur = limit.rlim_max;
    expect_refusal(setrlimit(kinds[i], &limit), "raised a limit");
  }
  return verdict();
}
