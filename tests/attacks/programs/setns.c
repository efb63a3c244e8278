/* namespaces: no namespace of another process can be entered */
#include "attack.h"
static void enter(int pid) {
  const char *kinds[] = {"mnt", "net", "pid", "user", "ipc", "uts", "cgroup"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kinds[i]);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || setns(fd, 0)) refused();
    else leak("entered %s", path);
    if (fd >= 0) close(fd);
  }
}
int main(void) {
  enter(1);
  enter(victim());
  return verdict();
}
