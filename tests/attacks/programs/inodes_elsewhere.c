/* bombs: no other place takes the files that scratch refuses */
#include "attack.h"
#include "hoard.h"
int main(void) {
  const char *places[] = {"/tmp", "/dev/shm", "/var/tmp", "/run", "/run/lock", "/dev", "/dev/mqueue", "/dev/pts", "/home", "/mnt", "/liftbench-channel"};
  const int count = (int)(sizeof places / sizeof *places), most = 3 * atoi(given("LB_FILES"));
  char path[300];
  int made[16] = {0}, all = 0;
  for (int i = 0; i < count; i++)
    for (; all < most; made[i]++, all++) {
      snprintf(path, sizeof path, "%s/%s-%d", places[i], token(), made[i]);
      int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
      if (fd < 0) {
        refused();
        break;
      }
      close(fd);
    }
  if (all >= most) {
    wait_for_watchdog();
    leak("%d files beside scratch", all);
  }
  for (int i = 0; i < count; i++)
    while (made[i]-- > 0) {
      snprintf(path, sizeof path, "%s/%s-%d", places[i], token(), made[i]);
      unlink(path);
    }
  return verdict();
}
