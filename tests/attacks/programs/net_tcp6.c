/* network: no TCP connection over IPv6, not even to the host's loopback */
#include "attack.h"
#include <arpa/inet.h>
int main(void) {
  struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(given("LB_PORT")))};
  to.sin6_addr = in6addr_loopback;
  int fd = socket(AF_INET6, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) || write(fd, token(), strlen(token())) < 0) refused();
  else leak("connected to ::1");
  return verdict();
}
