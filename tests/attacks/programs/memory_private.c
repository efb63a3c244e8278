/* bombs: private memory is limited */
#include "attack.h"
#include "hoard.h"
int main(void) { return hoard(MAP_PRIVATE | MAP_ANONYMOUS, -1); }
