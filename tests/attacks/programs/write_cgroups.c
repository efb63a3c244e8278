/* writing: no control group can be made, left or changed */
#include "attack.h"
static void group(const char *root) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", root, token());
  expect_refusal(mkdir(path, 0755), path);
  snprintf(path, sizeof path, "%s/cgroup.procs", root);
  open_for_writing(path);
  snprintf(path, sizeof path, "%s/release_agent", root);
  open_for_writing(path);
  snprintf(path, sizeof path, "%s/memory.max", root);
  open_for_writing(path);
}
int main(void) {
  group("/sys/fs/cgroup");
  DIR *all = opendir("/sys/fs/cgroup");
  for (struct dirent *one; all && (one = readdir(all));) {
    char path[300];
    if (one->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", one->d_name);
    struct stat facts;
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) group(path);
  }
  return verdict();
}
