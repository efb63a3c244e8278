/* mounts: what covers a directory cannot be taken away */
#include "attack.h"
int main(void) {
  const char *places[] = {"/proc", "/proc/kcore", "/proc/sys", "/sys", "/dev", "/dev/shm", "/tmp", "/scratch"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) expect_refusal(umount2(places[i], MNT_DETACH), places[i]);
  return verdict();
}
