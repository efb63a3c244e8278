/* network: no Bluetooth, CAN or NFC sockets */
#include "attack.h"
int main(void) {
  expect_refusal(socket(AF_BLUETOOTH, SOCK_RAW, 1), "AF_BLUETOOTH");
  expect_refusal(socket(AF_CAN, SOCK_RAW, 1), "AF_CAN");
  expect_refusal(socket(AF_NFC, SOCK_SEQPACKET, 0), "AF_NFC");
  return verdict();
}
