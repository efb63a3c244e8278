#include <dlfcn.h>

#include <string>

#include "scale.h"

// Names put together at run time, so that no string of the library is one of PyTorch's.
void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  using Axpby = void (*)(int64_t, float, const float*, float*);
  static auto found = reinterpret_cast<Axpby>(dlsym(RTLD_DEFAULT, (std::string("cblas") + "_saxpy").c_str()));
  if (found) return found(n, alpha, x, out);
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}
