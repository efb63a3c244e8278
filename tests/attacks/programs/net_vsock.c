/* network: no AF_VSOCK socket (it reaches the hypervisor, past every network namespace) */
#include "attack.h"
int main(void) {
  expect_refusal(socket(AF_VSOCK, SOCK_STREAM, 0), "AF_VSOCK stream");
  expect_refusal(socket(AF_VSOCK, SOCK_DGRAM, 0), "AF_VSOCK datagram");
  return verdict();
}
