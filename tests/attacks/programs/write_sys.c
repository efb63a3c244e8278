/* writing: no kernel setting below /sys can be opened for writing */
#include "attack.h"
int main(void) {
  const char *files[] = {"/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled",
                         "/sys/power/state", "/sys/module/printk/parameters/time", "/sys/kernel/profiling",
                         "/sys/devices/system/cpu/cpu1/online"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) open_for_writing(files[i]);
  drop_file("/sys/fs/bpf");
  return verdict();
}
