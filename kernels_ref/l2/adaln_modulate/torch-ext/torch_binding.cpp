#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("adaln_modulate(Tensor! out, Tensor x, Tensor shift, Tensor scale, float eps) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("adaln_modulate", TORCH_BOX(&adaln_modulate));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("adaln_modulate", TORCH_BOX(&adaln_modulate));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
