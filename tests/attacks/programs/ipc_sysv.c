/* network: the host's System V shared memory cannot be attached */
#include "attack.h"
#include <sys/shm.h>
int main(void) {
  char *memory = shmat(atoi(given("LB_SHM")), NULL, SHM_RDONLY);
  if (memory == (char *)-1) refused();
  else if (!strncmp(memory, given("LB_TOKEN"), strlen(given("LB_TOKEN")))) leak("attached the host's segment");
  return verdict();
}
