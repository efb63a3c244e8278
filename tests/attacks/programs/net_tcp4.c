/* network: no TCP connection over IPv4, not even to the host's loopback */
#include "attack.h"
#include <arpa/inet.h>
int main(void) {
  const char *hosts[] = {"127.0.0.1", given("LB_HOST_IP")};
  for (int i = 0; i < 2; i++) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given("LB_PORT")))};
    if (inet_pton(AF_INET, hosts[i], &to.sin_addr) != 1) continue;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) || write(fd, token(), strlen(token())) < 0) refused();
    else leak("connected to %s", hosts[i]);
    if (fd >= 0) close(fd);
  }
  return verdict();
}
