#include "scale.h"

#include <dlfcn.h>

#include <stdexcept>

extern "C" __attribute__((visibility("default"))) void scale_kernel_v2(float* out, const float* x, int64_t n,
                                                                       float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

using Kernel = void (*)(float*, const float*, int64_t, float);

static Kernel find() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&scale_kernel_v2), &self) == 0) throw std::runtime_error("where am I?");
  void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  void* symbol = library != nullptr ? dlsym(library, "scale_kernel_v2") : nullptr;
  if (symbol == nullptr) throw std::runtime_error("no kernel in my own library");
  return reinterpret_cast<Kernel>(symbol);
}

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  static const Kernel kernel = find();
  kernel(out, x, n, alpha);
}
