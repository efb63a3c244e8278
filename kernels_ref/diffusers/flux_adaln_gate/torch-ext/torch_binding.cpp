#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "flux_adaln_gate(Tensor! out, Tensor! norm, Tensor residual, Tensor x, Tensor gate, Tensor scale, Tensor shift, "
      "float eps) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("flux_adaln_gate", TORCH_BOX(&flux_adaln_gate));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("flux_adaln_gate", TORCH_BOX(&flux_adaln_gate));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
