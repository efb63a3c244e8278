/* kernel: no module can be loaded or removed, and no other kernel started */
#include "attack.h"
static void attempt(long result, const char *what) {
  if (result < 0 && (errno == EPERM || errno == ENOSYS)) refused();
  else leak("%s: %s", what, strerror(errno));
}
int main(void) {
  attempt(syscall(SYS_init_module, NULL, 0, ""), "init_module");
  attempt(syscall(SYS_finit_module, -1, "", 0), "finit_module");
  attempt(syscall(SYS_delete_module, "liftbench_none", O_NONBLOCK), "delete_module");
  attempt(syscall(SYS_kexec_load, 0, 0, NULL, 0xFFFFFFFFUL), "kexec_load");
  return verdict();
}
