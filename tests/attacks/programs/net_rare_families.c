/* network: no socket of a rare family, whose code few people look at */
#include "attack.h"
int main(void) {
  for (int family = 3; family < 46; family++) {
    if (family == AF_INET6 || family == AF_NETLINK || family == AF_PACKET || family == AF_BLUETOOTH ||
        family == AF_CAN || family == AF_NFC || family == AF_VSOCK || family == AF_ALG)
      continue; /* each has an attack of its own */
    for (int kind = SOCK_STREAM; kind <= SOCK_SEQPACKET; kind++) {
      int fd = socket(family, kind, 0);
      if (fd >= 0) {
        leak("family %d, kind %d", family, kind);
        close(fd);
      } else {
        refused();
      }
    }
  }
  return verdict();
}
