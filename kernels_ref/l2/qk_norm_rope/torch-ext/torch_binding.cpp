#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("qk_norm_rope(Tensor! qkv, Tensor q_weight, Tensor k_weight, Tensor cos, Tensor sin, float eps) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("qk_norm_rope", TORCH_BOX(&qk_norm_rope));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("qk_norm_rope", TORCH_BOX(&qk_norm_rope));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
