/* writing: the home of the user who runs liftbench cannot be written to */
#include "attack.h"
int main(void) {
  drop_file(given("LB_HOME"));
  return verdict();
}
