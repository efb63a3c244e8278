/* results: a student that kills itself ended by a signal, and was not out of memory */
#include "attack.h"
int main(void) { return kill(getpid(), SIGKILL) || pause(); }
