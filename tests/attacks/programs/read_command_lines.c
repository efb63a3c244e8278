/* reading: command lines of processes outside cannot be seen */
#include "attack.h"
static void act(int pid) {
  char path[64], mark[128];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  snprintf(mark, sizeof mark, "victim-%s", given("LB_TOKEN"));
  if (holds(path, mark)) leak("%s holds %s", path, mark);
}
int main(void) {
  each_process(act);
  return verdict();
}
