/* deferral: no trigger on the machine's pressure figures, which a kernel thread looks at while its owner is stopped */
#include "attack.h"
int main(void) {
  const char *files[] = {"/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"};
  const char order[] = "some 1000000 2000000";
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    int fd = open(files[i], O_RDWR | O_CLOEXEC);
    if (fd < 0)
      refused();
    else
      expect_refusal(write(fd, order, sizeof order), files[i]);
  }
  return verdict();
}
