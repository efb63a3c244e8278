/* network: no UDP datagram reaches the host */
#include "attack.h"
#include <arpa/inet.h>
int main(void) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given("LB_PORT")))};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  if (fd < 0 || sendto(fd, token(), strlen(token()), 0, (struct sockaddr *)&to, sizeof to) < 0) refused();
  else leak("sent"); /* to whom, the listener knows */
  return verdict();
}
