/* reading: a file outside that any user may read, but that was not given, cannot be read */
#include "attack.h"
int main(void) {
  read_out(given("LB_PUBLIC"));
  return verdict();
}
