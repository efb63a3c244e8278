/* writing: directories that are given as readable (toolkit, torch) cannot be written to */
#include "attack.h"
int main(void) {
  char path[512];
  drop_file(given("LB_TOOLKIT"));
  snprintf(path, sizeof path, "%s/nvcc", given("LB_TOOLKIT"));
  open_for_writing(path);
  drop_file("/usr/local/cuda/bin");
  return verdict();
}
