/* writing: no file can be made in the system's program and library directories */
#include "attack.h"
int main(void) {
  const char *places[] = {"/usr/bin", "/usr/local/bin", "/usr/lib", "/usr/local/lib", "/bin", "/lib", "/opt"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) drop_file(places[i]);
  return verdict();
}
