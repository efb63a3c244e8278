/* processes: a process outside cannot be signalled by its number */
#include "attack.h"
int main(void) {
  expect_refusal(kill(victim(), SIGUSR1), "signalled it");
  expect_refusal(syscall(SYS_tgkill, victim(), victim(), SIGUSR1), "tgkill");
  return verdict();
}
