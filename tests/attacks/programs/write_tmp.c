/* writing: files in /tmp and /var/tmp do not appear in the host's */
#include "attack.h"
int main(void) {
  drop_file("/tmp");
  drop_file("/var/tmp");
  return verdict();
}
