/* reading: the harness's source cannot be read */
#include "attack.h"
int main(void) {
  char path[512];
  const char *files[] = {"grade.py", "judge/clock.py", "outcome.py"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/%s", given("LB_HARNESS"), files[i]);
    read_out(path);
  }
  return verdict();
}
