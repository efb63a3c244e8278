/* bombs: the number of files in scratch is limited */
#include "attack.h"
#include "hoard.h"
int main(void) {
  int most = atoi(given("LB_FILES")), made = 0;
  char path[64];
  mkdir("many", 0700);
  while (made < 2 * most) {
    snprintf(path, sizeof path, "many/%d", made);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0) break;
    close(fd);
    made++;
  }
  refused();
  if (made >= 2 * most) {
    wait_for_watchdog();
    leak("%d files", made);
  }
  return verdict();
}
