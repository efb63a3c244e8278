/* reading: no environment of another process holds the launcher's keys */
#include "attack.h"
static void act(int pid) {
  char path[64], key[128];
  snprintf(path, sizeof path, "/proc/%d/environ", pid);
  snprintf(key, sizeof key, "sk-canary-%s", given("LB_KEY_TAIL"));
  if (holds(path, key)) leak("%s holds %s", path, key);
}
int main(void) {
  each_process(act);
  return verdict();
}
