/* writing: no kernel setting below /proc can be opened for writing */
#include "attack.h"
int main(void) {
  const char *files[] = {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe",
                         "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger",
                         "/proc/irq/default_smp_affinity", "/proc/sys/fs/binfmt_misc/register",
                         "/proc/sys/user/max_user_namespaces"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) open_for_writing(files[i]);
  return verdict();
}
