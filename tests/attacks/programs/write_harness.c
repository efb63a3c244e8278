/* writing: the harness's own source cannot be written to */
#include "attack.h"
int main(void) {
  char path[512];
  drop_file(given("LB_HARNESS"));
  snprintf(path, sizeof path, "%s/grade.py", given("LB_HARNESS"));
  open_for_writing(path);
  return verdict();
}
