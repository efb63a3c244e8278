/* namespaces: no user namespace by unshare(2) */
#include "attack.h"
int main(void) {
  expect_refusal(unshare(CLONE_NEWUSER), "unshare(CLONE_NEWUSER)");
  return verdict();
}
