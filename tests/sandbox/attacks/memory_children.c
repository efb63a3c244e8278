/* bombs: memory is limited for all processes of a job together */
#include "attack.h"
#include "hoard.h"
int main(void) {
  int children = 8, failed = 0;
  int go[2];
  if (pipe(go)) return unmeasured("no pipe");
  for (int i = 0; i < children; i++) {
    pid_t child = fork();
    if (child == 0) {
      size_t size = HOARD_BYTES / 8;
      char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) _exit(1);
      memset(memory, 1, size);
      char byte = 'k';
      if (write(go[1], &byte, 1) < 0) _exit(1);
      sleep(5);
      _exit(0);
    }
  }
  close(go[1]);
  for (int i = 0; i < children; i++) {
    char byte;
    if (read(go[0], &byte, 1) != 1) failed++;
  }
  if (failed) {
    errno = ENOMEM;
    refused();
    return verdict();
  }
  return hoarded();
}
