/* kernel: address randomisation cannot be switched off */
#include "attack.h"
#include <sys/personality.h>
int main(void) {
  expect_refusal(personality(ADDR_NO_RANDOMIZE), "personality(ADDR_NO_RANDOMIZE)");
  return verdict();
}
