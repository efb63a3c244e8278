/* writing: no file can be made in /etc, and no file there can be changed */
#include "attack.h"
int main(void) {
  drop_file("/etc");
  drop_file("/etc/cron.d");
  open_for_writing("/etc/passwd");
  open_for_writing("/etc/ld.so.cache");
  return verdict();
}
