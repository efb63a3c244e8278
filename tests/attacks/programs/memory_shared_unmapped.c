/* bombs: shared memory that its mapping has let go, but not its owner, is limited */
#include "attack.h"
#include "hoard.h"
static void take(int fd, int flags) {
  const int64_t step = 16 << 20;
  for (int64_t got = 0; got < HOARD_BYTES; got += step) {
    char *memory = mmap(NULL, (size_t)step, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) {
      refused();
      return;
    }
    for (int64_t at = 0; at < step; at += 1 << 20) {
      memset(memory + at, 1, 1 << 20);
      madvise(memory + at, 1 << 20, MADV_DONTNEED); /* the mapping's pages, not the object's */
    }
  }
  hoarded();
}
int main(void) {
  int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  take(-1, MAP_SHARED | MAP_ANONYMOUS);
  if (zero >= 0)
    take(zero, MAP_SHARED);
  else
    refused();
  return verdict();
}
