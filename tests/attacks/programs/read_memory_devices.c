/* reading: memory of the machine cannot be read through devices or /proc */
#include "attack.h"
int main(void) {
  const char *files[] = {"/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/proc/kpageflags", "/proc/kpagecount"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char bytes[8];
    int fd = open(files[i], O_RDONLY);
    if (fd >= 0 && read(fd, bytes, 8) > 0) leak("read %s", files[i]);
    else refused();
  }
  return verdict();
}
