/* reading: a private file of the user who runs liftbench cannot be read */
#include "attack.h"
static void act(int pid) {
  char path[600];
  snprintf(path, sizeof path, "/proc/%d/root%s", pid, given("LB_SECRET"));
  if (holds(path, given("LB_TOKEN"))) read_out(path);
}
int main(void) {
  read_out(given("LB_SECRET"));
  if (!leaks_) each_process(act);
  return verdict();
}
