/* writing: no file can be made in / */
#include "attack.h"
int main(void) {
  drop_file("/");
  return verdict();
}
