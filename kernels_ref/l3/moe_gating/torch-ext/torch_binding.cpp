#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("moe_gating(Tensor! weights, Tensor! ids, Tensor logits, Tensor bias, float scaling) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("moe_gating", TORCH_BOX(&moe_gating));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("moe_gating", TORCH_BOX(&moe_gating));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
