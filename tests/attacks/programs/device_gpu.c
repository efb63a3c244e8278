/* devices: a job that was given no GPU cannot open one */
#include "attack.h"
int main(void) {
  const char *files[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-modeset",
                         "/dev/nvidia-caps/nvidia-cap1"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) expect_refusal(open(files[i], O_RDWR), files[i]);
  return verdict();
}
