/* network: no netlink sockets (routing, audit, kernel events) */
#include "attack.h"
int main(void) {
  const int kinds[] = {0 /* route */, 9 /* audit */, 15 /* uevent */, 16 /* generic */};
  for (int i = 0; i < 4; i++) expect_refusal(socket(AF_NETLINK, SOCK_RAW, kinds[i]), "AF_NETLINK");
  return verdict();
}
