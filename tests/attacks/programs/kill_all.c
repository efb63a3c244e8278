/* processes: a signal to everybody reaches nobody outside */
#include "attack.h"
int main(void) {
  /* SIGWINCH needs the same right as SIGKILL and harms nobody; the victim takes note of it. */
  signal(SIGWINCH, SIG_IGN);
  if (kill(-1, SIGWINCH)) refused();
  return verdict();
}
