/* reading: a file outside cannot be linked into scratch */
#include "attack.h"
int main(void) {
  if (link(given("LB_SECRET"), "stolen") == 0) leak("linked the secret");
  else refused();
  if (linkat(AT_FDCWD, given("LB_PUBLIC"), AT_FDCWD, "stolen-too", 0) == 0) leak("linked the public file");
  else refused();
  return verdict();
}
