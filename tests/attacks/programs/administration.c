/* kernel: reboot, swap, accounting, quotas and host name are refused */
#include "attack.h"
static void attempt(long result, const char *what) {
  if (result < 0 && (errno == EPERM || errno == ENOSYS || errno == EACCES)) refused();
  else leak("%s: %s", what, result < 0 ? strerror(errno) : "done");
}
int main(void) {
  char name[65] = "";
  /* Wrong magic numbers: whoever has the right gets EINVAL, and nothing happens. */
  attempt(syscall(SYS_reboot, 1, 2, 3, NULL), "reboot");
  attempt(syscall(SYS_swapon, "no-such-file", 0), "swapon");
  attempt(syscall(SYS_acct, "no-such-file"), "acct");
  if (gethostname(name, sizeof name - 1) == 0) attempt(sethostname(name, strlen(name)), "sethostname");
  attempt(syscall(SYS_iopl, 3), "iopl");
  return verdict();
}
