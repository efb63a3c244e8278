/* mounts: nothing can be mounted, bound, remounted or moved with mount(2) */
#include "attack.h"
int main(void) {
  mkdir("place", 0700);
  expect_refusal(mount("none", "place", "tmpfs", 0, ""), "tmpfs");
  expect_refusal(mount("none", "place", "proc", 0, ""), "proc");
  expect_refusal(mount("/", "place", NULL, MS_BIND | MS_REC, NULL), "bind /");
  expect_refusal(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), "remount / writable");
  expect_refusal(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL), "make / shared");
  return verdict();
}
