/* network: no raw sockets, of IP or of the link */
#include "attack.h"
#include <netinet/in.h>
int main(void) {
  expect_refusal(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), "AF_INET raw");
  expect_refusal(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), "AF_INET6 raw");
  expect_refusal(socket(AF_PACKET, SOCK_RAW, 0), "AF_PACKET raw");
  expect_refusal(socket(AF_PACKET, SOCK_DGRAM, 0), "AF_PACKET cooked");
  return verdict();
}
