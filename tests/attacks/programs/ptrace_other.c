/* processes: a process outside cannot be traced */
#include "attack.h"
#include <sys/ptrace.h>
int main(void) {
  if (ptrace(PTRACE_SEIZE, victim(), 0, 0)) refused();
  else leak("attached to %d", victim());
  return verdict();
}
