/* bombs: shared anonymous memory is limited */
#include "attack.h"
#include "hoard.h"
int main(void) { return hoard(MAP_SHARED | MAP_ANONYMOUS, -1); }
