/* writing: a world-writable directory outside, which was not given, cannot be written to */
#include "attack.h"
int main(void) {
  drop_file(given("LB_OPEN_FOLDER"));
  return verdict();
}
