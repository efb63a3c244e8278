/* collector: a device node is not taken */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  if (mknod("out/zero", S_IFCHR | 0666, makedev(1, 5))) refused();
  if (mknod("out/disk", S_IFBLK | 0666, makedev(254, 0))) refused();
  return 0;
}
