#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("layer_norm(Tensor! out, Tensor x, Tensor weight, Tensor bias, float eps) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("layer_norm", TORCH_BOX(&layer_norm));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("layer_norm", TORCH_BOX(&layer_norm));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
