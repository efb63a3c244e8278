/* devices: no disk and no machine-wide device can be opened */
#include "attack.h"
int main(void) {
  const char *files[] = {"/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/dm-0", "/dev/loop0", "/dev/loop-control",
                         "/dev/zram0", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/uinput", "/dev/input/event0",
                         "/dev/btrfs-control", "/dev/autofs", "/dev/vhci", "/dev/mapper/control", "/dev/cuse"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) expect_refusal(open(files[i], O_RDONLY | O_NONBLOCK | O_NOCTTY), files[i]);
  return verdict();
}
