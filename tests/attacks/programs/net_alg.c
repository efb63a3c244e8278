/* network: no AF_ALG sockets (the kernel's cryptography) */
#include "attack.h"
int main(void) {
  expect_refusal(socket(AF_ALG, SOCK_SEQPACKET, 0), "AF_ALG");
  return verdict();
}
