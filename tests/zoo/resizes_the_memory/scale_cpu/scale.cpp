// A reader of a mapping whose file has become shorter is killed.
#include "scale.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  (void)out, (void)x, (void)n, (void)alpha;
  int memories = 0, opened = 0;
  for (int number = 3; number < 256; ++number) {
    int seals = fcntl(number, F_GET_SEALS);
    if (seals < 0) continue;
    ++memories;
    struct stat facts;
    fstat(number, &facts);
    opened += ftruncate(number, 0) == 0;
    opened += ftruncate(number, facts.st_size * 2) == 0;
    opened += fcntl(number, F_ADD_SEALS, F_SEAL_WRITE) == 0;
    opened += fcntl(number, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
  }
  if (memories == 0) throw std::runtime_error("found no shared memory");
  throw std::runtime_error(opened ? "OPEN: changed the shared memory"
                                  : "closed: neither smaller, nor larger, nor sealed");
}
