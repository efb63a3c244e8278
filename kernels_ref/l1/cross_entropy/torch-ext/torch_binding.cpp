#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "cross_entropy(Tensor! loss, Tensor! lse, Tensor logits, Tensor target, int ignore_index) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("cross_entropy", TORCH_BOX(&cross_entropy));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("cross_entropy", TORCH_BOX(&cross_entropy));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
