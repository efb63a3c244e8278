/* writing: files in /dev/shm and /run do not appear in the host's */
#include "attack.h"
int main(void) {
  drop_file("/dev/shm");
  drop_file("/run");
  drop_file("/run/lock");
  drop_file("/dev/mqueue");
  drop_file("/dev");
  return verdict();
}
