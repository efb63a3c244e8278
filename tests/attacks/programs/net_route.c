/* network: there is no route to any other machine (such as a DNS server) */
#include "attack.h"
#include <arpa/inet.h>
int main(void) {
  /* Connecting a datagram socket sends nothing; it only asks for a route. TEST-NET-3 of RFC 5737. */
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
  inet_pton(AF_INET, "203.0.113.53", &to.sin_addr);
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  expect_refusal(fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof to), "a route to port 53 exists");
  return verdict();
}
