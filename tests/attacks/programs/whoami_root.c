/* none: (helper of setuid_program) tells by its exit code whether it runs as root */
#include "attack.h"
int main(void) { return geteuid() == 0 ? 42 : 0; }
