/* bombs: memory in memfds is limited */
#include "attack.h"
#include "hoard.h"
int main(void) {
  int fd = memfd_create("hoard", 0);
  if (fd < 0) {
    refused();
    return verdict();
  }
  return hoard(MAP_SHARED, fd);
}
