/* bombs: memory is limited for all processes of a job together */
#include "attack.h"
#include "hoard.h"
int main(void) {
  enum { CHILDREN = 8 };
  int failed = 0;
  pid_t pids[CHILDREN];
  int go[2];
  if (pipe(go)) return unmeasured("no pipe");
  for (int i = 0; i < CHILDREN; i++) {
    pids[i] = fork();
    if (pids[i] == 0) {
      size_t size = HOARD_BYTES / CHILDREN;
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
  for (int i = 0; i < CHILDREN; i++) {
    char byte;
    if (read(go[0], &byte, 1) != 1) failed++;
  }
  struct timespec second = {1, 0};
  nanosleep(&second, NULL);
  /* One that was killed for its memory had said so before: all must hold it at the same time. */
  for (int i = 0; i < CHILDREN; i++)
    if (pids[i] > 0 && waitpid(pids[i], NULL, WNOHANG) != 0) failed++;
  if (failed) {
    errno = ENOMEM;
    refused();
    return verdict();
  }
  return hoarded();
}
