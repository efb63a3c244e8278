/* writing: the program that starts the job inside the sandbox, and its interpreter, cannot be written to */
#include "attack.h"
int main(void) {
  char path[512];
  drop_file("/liftbench");
  drop_file(given("LB_SANDBOXES"));
  open_for_writing("/liftbench/inside.py");
  open_for_writing("/liftbench/seccomp");
  snprintf(path, sizeof path, "%s/inside.py", given("LB_SANDBOXES"));
  open_for_writing(path);
  /* How a container's runtime was once overwritten (CVE-2019-5736). */
  open_for_writing("/proc/1/exe");
  open_for_writing("/opt/liftbench/venv/bin/python");
  drop_file("/opt/liftbench/venv/bin");
  return verdict();
}
