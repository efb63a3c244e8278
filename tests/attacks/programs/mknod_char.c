/* devices: memory, the kernel log and GPUs cannot be reached through device nodes of one's own */
#include "attack.h"
int main(void) {
  const dev_t numbers[] = {makedev(1, 1), makedev(1, 11), makedev(10, 229), makedev(195, 0), makedev(195, 255)};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    unlink("device");
    if (mknod("device", S_IFCHR | 0600, numbers[i])) refused();
    else if (open("device", O_RDWR) >= 0 || errno == ENXIO) leak("device %u:%u", major(numbers[i]), minor(numbers[i]));
    else refused();
  }
  return verdict();
}
