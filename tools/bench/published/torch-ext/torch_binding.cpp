#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float factor) -> ()");
#if defined(CPU_KERNEL)
  ops.impl("scale", torch::kCPU, &scale);
#elif defined(CUDA_KERNEL)
  ops.impl("scale", torch::kCUDA, &scale);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
