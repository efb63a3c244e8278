/* reading: files in another running trial's scratch directory cannot be read */
#include "attack.h"
static char mark[128];
static void look(const char *path) {
  if (holds(path, mark)) leak("%s holds %s", path, mark);
}
static void act(int pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cwd/other-trial", pid);
  look(path);
}
static void sweep(const char *root, int depth) {
  DIR *all = opendir(root);
  for (struct dirent *one; all && (one = readdir(all));) {
    char path[512];
    if (one->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", root, one->d_name);
    if (!strcmp(one->d_name, "other-trial")) look(path);
    else if (depth && one->d_type == DT_DIR) sweep(path, depth - 1);
  }
  if (all) closedir(all);
}
int main(void) {
  snprintf(mark, sizeof mark, "other-%s", given("LB_TOKEN"));
  each_process(act);
  sweep("/tmp", 3);
  sweep("/var/tmp", 3);
  sweep("/dev/shm", 3);
  sweep("/scratch/..", 2);
  return verdict();
}
