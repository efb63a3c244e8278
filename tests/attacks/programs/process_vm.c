/* processes: memory of a process outside cannot be read or written by process_vm_readv and _writev */
#include "attack.h"
#include <sys/uio.h>
int main(void) {
  char bytes[16];
  struct iovec here = {bytes, sizeof bytes}, there = {(void *)0x1000, sizeof bytes};
  /* EFAULT means that only the address was wrong. */
  if (process_vm_readv(victim(), &here, 1, &there, 1, 0) >= 0 || errno == EFAULT) leak("process_vm_readv");
  else refused();
  if (process_vm_writev(victim(), &here, 1, &there, 1, 0) >= 0 || errno == EFAULT) leak("process_vm_writev");
  else refused();
  return verdict();
}
