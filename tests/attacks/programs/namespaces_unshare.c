/* namespaces: no mount, network, process, IPC, host name or cgroup namespace */
#include "attack.h"
int main(void) {
  const int kinds[] = {CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) expect_refusal(unshare(kinds[i]), "unshare");
  return verdict();
}
