/* network: System V memory that a job makes is gone when the job has ended */
#include "attack.h"
#include <sys/shm.h>
int main(void) {
  int id = shmget(IPC_PRIVATE, 1 << 16, 0600 | IPC_CREAT);
  if (id < 0) refused();
  else leak("segment %d of %d bytes", id, 1 << 16);
  return verdict();
}
