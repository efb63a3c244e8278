/* network: the host's network interfaces cannot be listed */
#include "attack.h"
#include <net/if.h>
int main(void) {
  char names[512];
  snprintf(names, sizeof names, "%s", given("LB_INTERFACES"));
  if (!*names) return unmeasured("the host has no interface but the loopback");
  for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
    if (if_nametoindex(name)) leak("interface %s is known", name);
    else refused();
  }
  return verdict();
}
