#include "scale.h"

#include <pthread.h>

#include <cstring>

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  char before[16];
  if (pthread_getname_np(pthread_self(), before, sizeof before) != 0) std::strcpy(before, "python");
  pthread_setname_np(pthread_self(), "scale-kernel");
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
  pthread_setname_np(pthread_self(), before);
}
