#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("group_norm_silu(Tensor! out, Tensor x, Tensor weight, Tensor bias, float eps, int groups) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("group_norm_silu", TORCH_BOX(&group_norm_silu));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("group_norm_silu", TORCH_BOX(&group_norm_silu));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
