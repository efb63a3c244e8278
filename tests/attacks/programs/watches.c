/* kernel: no watch on files, for which whoever else uses them pays, and of which a user has few */
#include "attack.h"
#include <sys/inotify.h>
int main(void) {
  expect_refusal(inotify_init1(0), "inotify_init1");
#ifdef SYS_inotify_init
  expect_refusal(syscall(SYS_inotify_init), "inotify_init");
#endif
  /* Without privileges: by FAN_REPORT_FID. */
  expect_refusal(syscall(SYS_fanotify_init, 0x200, O_RDONLY), "fanotify_init");
  int usr = open("/usr", O_RDONLY | O_DIRECTORY);
  if (usr >= 0) expect_refusal(fcntl(usr, F_NOTIFY, DN_ACCESS | DN_MULTISHOT), "F_NOTIFY on /usr");
  return verdict();
}
