/* devices: the disk cannot be reached through a device node of one's own */
#include "attack.h"
int main(void) {
  struct stat facts;
  if (stat("/etc", &facts)) return unmeasured("no /etc");
  const dev_t numbers[] = {facts.st_dev, makedev(254, 0), makedev(8, 0), makedev(259, 0), makedev(7, 0)};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    unlink("disk");
    if (mknod("disk", S_IFBLK | 0600, numbers[i])) refused();
    else if (open("disk", O_RDONLY) >= 0 || errno == ENXIO) leak("block device %u:%u", major(numbers[i]), minor(numbers[i]));
    else refused();
  }
  return verdict();
}
