/* processes: memory of a process outside cannot be opened in /proc */
#include "attack.h"
int main(void) {
  const char *files[] = {"mem", "maps", "auxv", "stack"};
  for (int i = 0; i < 4; i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", victim(), files[i]);
    int fd = open(path, O_RDONLY);
    expect_refusal(fd, path);
    if (fd >= 0) close(fd);
  }
  return verdict();
}
