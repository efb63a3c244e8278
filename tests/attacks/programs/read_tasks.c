/* reading: tasks and their references cannot be read */
#include "attack.h"
int main(void) {
  read_out(given("LB_TASK"));
  return verdict();
}
